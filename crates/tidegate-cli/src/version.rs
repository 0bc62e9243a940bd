//! `tidegate version`: the version, for people and programs.

use serde::Serialize;

use crate::args::output::Output;
use crate::failure::Failure;
use crate::terminal::{print, print_json};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prints the version, like `--version`.
pub(crate) fn version(output: Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Version {
        version: &'static str,
    }
    if output.json {
        return print_json(&Version { version: VERSION });
    }
    print(&format!("tidegate {VERSION}"))
}
