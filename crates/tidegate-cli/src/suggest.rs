//! `tidegate suggest`: suggests a limit from traffic logs.
//!
//! Standard output is a configuration file, or JSON.

use tidegate_replay::{Spool, SuggestionReport, busiest_minutes};

use crate::args::replay::SuggestArgs;
use crate::failure::Failure;
use crate::log_files;
use crate::progress::PassBar;
use crate::terminal::print;

/// Reads the logs and prints the suggestion.
pub(crate) fn suggest(args: &SuggestArgs) -> Result<(), Failure> {
    let (mut spool, mut minutes) = (Spool::new()?, busiest_minutes());
    let (keys, summary) = log_files::read(&args.log, &mut (&mut spool, &mut minutes))?;
    let suggestion = tidegate_replay::suggest(&mut spool, &minutes, &mut PassBar::new())?;
    let report = SuggestionReport::new(&suggestion, &keys, &summary);
    match args.log.json {
        true => print(&serde_json::to_string_pretty(&report).map_err(Failure::Json)?),
        false => print(report.to_toml().trim_end()),
    }
}
