//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  tidegate serve                          on 127.0.0.1:8080, with limits to try
  tidegate serve --config tidegate.toml   with your own limits
  tidegate serve --http 127.0.0.1:0       on a free port, which is printed
  tidegate check tidegate.toml            look for mistakes in a file

A file looks like this:
  [limits.client]
  capacity = 100
  rate = \"50/s\"

Exit codes: 0 done, 1 failed, 2 usage or configuration error.";

const SERVE_EXAMPLES: &str = "\
Examples:
  tidegate serve
  tidegate serve --config tidegate.toml --http 127.0.0.1:9000
  curl -d '{\"key\":\"alice\",\"limit\":\"client\"}' -H 'content-type: application/json' \\
    http://127.0.0.1:8080/v1/take

Flags win over the environment, which wins over the file, which wins over the defaults. The file
is the one given, else ./tidegate.toml, else tidegate/tidegate.toml in $XDG_CONFIG_HOME or /etc.
Every key of the file has a name in the environment: [store] max_memory is TIDEGATE_STORE_MAX_MEMORY.
TIDEGATE_LOG says what is logged: error, warn, info (default), debug, trace.";

/// Rate limits for programs of any language
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Open the doors and serve until told to stop
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Look for mistakes in a configuration file, and tell all of them
    Check {
        /// The file
        file: PathBuf,
    },
}

/// What `serve` takes. Hidden flags belong to parts that later versions have: scripts may pass
/// them already, and are told.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Read this configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Open the HTTP door here; port 0 picks a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Keep buckets in this store [default: memory:]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    #[arg(long, value_name = "ADDR", hide = true)]
    pub(crate) admin: Option<String>,
    #[arg(long, value_name = "ADDR", hide = true)]
    pub(crate) grpc: Option<String>,
    #[arg(long, value_name = "ADDR", hide = true)]
    pub(crate) resp: Option<String>,
    #[arg(long, value_name = "URL|none", hide = true)]
    pub(crate) database: Option<String>,
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) state_dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }
}
