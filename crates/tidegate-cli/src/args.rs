//! Command-line arguments and help texts.

pub(crate) mod demo;
pub(crate) mod output;
pub(crate) mod replay;
pub(crate) mod status;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use demo::DemoArgs;
use output::Output;
use replay::{SimulateArgs, SuggestArgs};
use status::StatusArgs;

/// Address of the documents, a folder of the repository.
macro_rules! documents {
    () => {
        concat!(env!("CARGO_PKG_REPOSITORY"), "/tree/main/docs")
    };
}

/// Where the documents are.
pub(crate) const DOCUMENTS: &str = documents!();

const EXAMPLES: &str = concat!(
    "\
Examples:
  tidegate demo                           see what it does, without keys or a network
  tidegate serve                          listen on 127.0.0.1:8080 with default limits
  tidegate serve --config tidegate.toml   use your own limits
  tidegate serve --http 127.0.0.1:0       listen on a free port and print it
  tidegate check tidegate.toml            validate a configuration file
  tidegate config show                    show every setting and its source
  tidegate status                         show the state of the running server
  tidegate simulate --log access.log --policy 'capacity=100,rate=50/s'
                                          show what a limit would have denied
  OPENAI_BASE_URL=http://127.0.0.1:8080/openai/v1 your-agent
                                          run a program whose calls wait instead of
                                          getting a 429

A configuration file looks like this:
  [limits.client]
  capacity = 100
  rate = \"50/s\"

With --json, a command prints one JSON document on standard output. Colours are off if the output is
not a terminal or NO_COLOR is set; CLICOLOR_FORCE=1 turns them on.

Documents: ",
    documents!(),
    "

Exit codes: 0 success, 1 failure, 2 usage or configuration error."
);

const SERVE_EXAMPLES: &str = "\
Examples:
  tidegate serve
  tidegate serve --config tidegate.toml --http 127.0.0.1:9000
  curl -d '{\"key\":\"alice\",\"limit\":\"client\"}' -H 'content-type: application/json' \\
    http://127.0.0.1:8080/v1/take

Flags override the database, which overrides the environment, the file and the defaults. The
database holds only limits, api, admission, gateway and provider settings; change them while the
server runs with `tidegate config set` or the admin API. SIGHUP reloads the file.
SIGTERM and SIGINT close the listeners and give requests in progress 25 s to complete; a second
signal ends them.
The file is the one given with --config, else ./tidegate.toml, else tidegate/tidegate.toml in
$XDG_CONFIG_HOME or /etc. Every key of the file has an environment variable: [store] max_memory is
TIDEGATE_STORE_MAX_MEMORY.
Calls to providers use HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, except for hosts in NO_PROXY.
TIDEGATE_LOG sets the log level: error, warn, info (default), debug, trace.";

const CHECK_EXAMPLES: &str = "\
Examples:
  tidegate check tidegate.toml
  tidegate check --strict tidegate.toml

Validates the file together with the environment, like `serve --config FILE`, but without flags and
database. Unlike `serve`, which only warns, it also fails if the variable named by an api_key_env is
not set, or if calls can never fall back to a provider in a fallback list.
--strict also connects to each configured provider: name resolution, TCP and TLS within its
connect_timeout, through its proxy, with its ca_file. No key is sent.
--json prints all errors, each with its file, line, column, key and text, and the warnings.

Exit codes: 0 valid, 1 a provider cannot be reached, 2 invalid configuration.";

/// Rate limiter for programs in any language, and gateway to LLM providers
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what the gateway changes, with a simulated provider: no keys, no network
    Demo(DemoArgs),
    /// Run the server until it receives SIGTERM or SIGINT
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Validate a configuration file and report all errors
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// Configuration file to check
        file: PathBuf,
        /// Also connect to every configured provider
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Replay traffic logs against limits: what they would have admitted and denied
    #[command(after_help = replay::SIMULATE_EXAMPLES)]
    Simulate(SimulateArgs),
    /// Suggest a limit from traffic logs, as a configuration to paste
    #[command(after_help = replay::SUGGEST_EXAMPLES)]
    Suggest(SuggestArgs),
    /// Show effective settings, and change those in the database
    #[command(after_help = CONFIG_EXAMPLES)]
    Config {
        #[command(flatten)]
        location: ConfigLocation,
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Write man pages and shell completions to a directory, in the layout of /usr/share
    #[command(hide = true)]
    InstallFiles {
        /// Directory to write to
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Create a token for the admin API, and its hash for the configuration file
    Key {
        #[command(flatten)]
        output: Output,
    },
    /// Show the state of a running server
    Status(StatusArgs),
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the version
    Version {
        #[command(flatten)]
        output: Output,
    },
    /// Manage the settings database
    Db {
        #[command(flatten)]
        location: ConfigLocation,
        #[command(subcommand)]
        action: DbAction,
    },
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(tidegate completions bash)
  tidegate completions zsh > ~/.zfunc/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish";

const CONFIG_EXAMPLES: &str = "\
Examples:
  tidegate config show limits
  tidegate config set limits.client.rate 10/s
  tidegate config set limits.team.capacity 20 limits.team.rate 10/s
  tidegate config set providers.openai.max_concurrent_requests 4
  tidegate config unset limits.client.rate

A running server applies changes within a second.";

/// Options that locate the configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigLocation {
    /// Read this configuration file
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Keep changed settings in this database: sqlite:PATH or postgres://... [default: an SQLite
    /// file in the state directory]
    #[arg(long, value_name = "URL|none", global = true)]
    pub(crate) database: Option<String>,
    /// Keep state files in this directory [default: tidegate in $XDG_STATE_HOME]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Show every effective setting and its source
    Show {
        /// Show only this key or section, such as limits.client
        #[arg(default_value = "")]
        part: String,
        #[command(flatten)]
        output: Output,
    },
    /// Set keys in the database: all of them, or none if one is invalid
    Set {
        /// Keys, such as limits.client.rate, each followed by its value, written as in an
        /// environment variable
        #[arg(required = true, num_args = 2.., value_names = ["KEY", "VALUE"])]
        pairs: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Remove keys from the database
    Unset {
        /// Keys to remove
        #[arg(required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Show the changes in the database, latest first
    History {
        /// Maximum number of changes to show
        #[arg(long, default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        output: Output,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum DbAction {
    /// Migrate the database to the schema of this version
    Migrate {
        #[command(flatten)]
        output: Output,
    },
}

/// Flags of `serve`. Hidden flags are for features of later versions; they are accepted with a
/// warning.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) location: ConfigLocation,
    /// Address of the HTTP API; port 0 picks a free port [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Address of the admin API [default: 127.0.0.1:6070]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<String>,
    /// Address of the gRPC API [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub(crate) grpc: Option<String>,
    #[arg(long, value_name = "ADDR", hide = true)]
    pub(crate) resp: Option<String>,
    /// Keep buckets in this store: memory:, redis://..., or durable://... (a Cloudflare Worker with
    /// Durable Objects; TIDEGATE_SECRET has its secret) [default: memory:]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Migrate a PostgreSQL database to the schema of this version at start
    #[arg(long)]
    pub(crate) auto_migrate: bool,
    /// Allow the admin and gRPC APIs to listen beyond loopback without any token
    #[arg(long)]
    pub(crate) allow_unauthenticated: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn help_states_the_time_for_requests_in_progress() {
        let grace = tidegate_server::SHUTDOWN_GRACE.as_secs();
        assert!(SERVE_EXAMPLES.contains(&format!("requests in progress {grace} s to complete")));
    }
}
