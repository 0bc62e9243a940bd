//! Arguments of `tidegate status`.

use super::ConfigLocation;
use super::output::Output;

const EXAMPLES: &str = "\
Examples:
  tidegate status
  tidegate status --admin http://127.0.0.1:6070
  tidegate status --quiet && echo ready
  TIDEGATE_ADMIN_TOKEN=... tidegate status --admin 10.0.0.5:6070 --json

Without --admin, the address is listen.admin of the configuration. If the server has admin tokens,
TIDEGATE_ADMIN_TOKEN must be one of them; it is sent to that address only and never shown.

Exit codes: 0 ready, 1 not ready, unreachable or refused, 2 invalid configuration or address.";

/// Flags of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) location: ConfigLocation,
    /// Address of the admin API: http://HOST:PORT or HOST:PORT [default: listen.admin]
    #[arg(long, value_name = "URL")]
    pub(crate) admin: Option<String>,
    /// Only check whether the server is ready, for health checks: print nothing if it is. Needs no
    /// token
    #[arg(long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}
