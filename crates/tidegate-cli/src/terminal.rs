//! Output: lines for programs on standard output, messages for people on standard error.

use std::io::{self, Write as _};

use serde::Serialize;
use tidegate_config::Environment;

use crate::failure::Failure;

/// Returns whether a stream gets colours, by the same rules as the help texts: `NO_COLOR`, then
/// `CLICOLOR_FORCE`, then `CLICOLOR`, then whether it is a terminal.
pub(crate) fn has_color(environment: &Environment, is_terminal: bool) -> bool {
    let value = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    if value("NO_COLOR").is_some() {
        return false;
    }
    value("CLICOLOR_FORCE").is_some_and(|force| force != "0")
        || is_terminal && value("CLICOLOR") != Some("0")
}

/// Prints a message to standard error, ignoring errors.
pub(crate) fn eprint_line(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints lines to standard output.
pub(crate) fn print(lines: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{lines}").and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Format number of all JSON documents. A field that is renamed or removed needs a new one.
const FORMAT: u32 = 1;

/// Prints a result as a JSON object with the format number.
pub(crate) fn print_json(result: &impl Serialize) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Document<'r, T> {
        format: u32,
        #[serde(flatten)]
        result: &'r T,
    }
    let document = Document { format: FORMAT, result };
    print(&serde_json::to_string_pretty(&document).map_err(Failure::Json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides_before_the_terminal() {
        let has = |pairs: &[(&str, &str)], is_terminal| {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            has_color(&pairs.iter().map(own).collect(), is_terminal)
        };
        assert!(has(&[], true) && !has(&[], false));
        assert!(!has(&[("NO_COLOR", "1")], true) && has(&[("NO_COLOR", "")], true));
        assert!(has(&[("CLICOLOR_FORCE", "1")], false) && !has(&[("CLICOLOR_FORCE", "0")], false));
        assert!(!has(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], true));
        assert!(!has(&[("CLICOLOR", "0")], true));
    }
}
