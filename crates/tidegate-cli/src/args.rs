//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  tidegate serve                          on 127.0.0.1:8080, with limits to try
  tidegate serve --config tidegate.toml   with your own limits
  tidegate serve --http 127.0.0.1:0       on a free port, which is printed
  tidegate check tidegate.toml            look for mistakes in a file
  tidegate config show                    every setting, and where it comes from
  OPENAI_BASE_URL=http://127.0.0.1:8080/openai/v1 your-agent
                                          calls that wait instead of seeing a 429

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

Flags win over the database, which wins over the environment, the file and the defaults. The
database has limits, api, admission and providers only; it is changed while the server runs, by
`tidegate config set` or the admin door. SIGHUP reads the file again. The file
is the one given, else ./tidegate.toml, else tidegate/tidegate.toml in $XDG_CONFIG_HOME or /etc.
Every key of the file has a name in the environment: [store] max_memory is TIDEGATE_STORE_MAX_MEMORY.
Calls to providers go through HTTPS_PROXY and HTTP_PROXY, or ALL_PROXY, but for hosts in NO_PROXY.
TIDEGATE_LOG says what is logged: error, warn, info (default), debug, trace.";

const CHECK_EXAMPLES: &str = "\
Examples:
  tidegate check tidegate.toml
  tidegate check --strict tidegate.toml

The file is read together with the environment, as `serve --config FILE` reads them; flags and the
database do not count. The variable that an api_key_env names must be set, and a fallback must be
one that calls can fall back to: `serve` only warns of these and goes on.
--strict makes a connection to each configured provider: name, TCP and TLS within its
connect_timeout, through its proxy, with its ca_file. No key is sent.

Exit codes: 0 no mistake, 1 a provider cannot be reached, 2 a mistake.";

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
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// The file
        file: PathBuf,
        /// Also try to reach every provider that is configured
        #[arg(long)]
        strict: bool,
    },
    /// Show the settings in force and change those of the database
    #[command(after_help = CONFIG_EXAMPLES)]
    Config {
        #[command(flatten)]
        location: ConfigLocation,
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Make a token for the admin door, and the hash that goes into the file
    Key,
    /// Look after the database of settings
    Db {
        #[command(flatten)]
        location: ConfigLocation,
        #[command(subcommand)]
        action: DbAction,
    },
}

const CONFIG_EXAMPLES: &str = "\
Examples:
  tidegate config show limits
  tidegate config set limits.client.rate 10/s
  tidegate config set limits.team.capacity 20 limits.team.rate 10/s
  tidegate config set providers.openai.max_concurrent_requests 4
  tidegate config unset limits.client.rate

A running server takes over what is set here within a second.";

/// Where the configuration is.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigLocation {
    /// Read this configuration file
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Keep settings in this database: sqlite:PATH or postgres://... [default: sqlite: in the state
    /// directory]
    #[arg(long, value_name = "URL|none", global = true)]
    pub(crate) database: Option<String>,
    /// Keep files in this directory [default: tidegate in $XDG_STATE_HOME]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Show every setting in force, and where it comes from
    Show {
        /// Only this key, or what is in this section, such as limits.client
        #[arg(default_value = "")]
        part: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Set keys in the database, all of them or none
    Set {
        /// Keys, such as limits.client.rate, each with its value, as it would stand in an
        /// environment variable
        #[arg(required = true, num_args = 2.., value_names = ["KEY", "VALUE"])]
        pairs: Vec<String>,
    },
    /// Take keys back out of the database
    Unset {
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Show who changed what in the database, the latest first
    History {
        /// At most so many changes
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum DbAction {
    /// Bring the database to the format of this version
    Migrate,
}

/// What `serve` takes. Hidden flags belong to parts that later versions have: scripts may pass
/// them already, and are told.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) location: ConfigLocation,
    /// Open the HTTP door here; port 0 picks a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Open the admin door here [default: 127.0.0.1:6070]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<String>,
    /// Open the gRPC door here [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub(crate) grpc: Option<String>,
    #[arg(long, value_name = "ADDR", hide = true)]
    pub(crate) resp: Option<String>,
    /// Keep buckets in this store [default: memory:]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Bring a PostgreSQL database to the format of this version at start
    #[arg(long)]
    pub(crate) auto_migrate: bool,
    /// Open the admin and gRPC doors beyond loopback without any token
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
}
