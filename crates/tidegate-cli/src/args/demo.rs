//! Arguments of `tidegate demo`.

use super::output::Output;

const EXAMPLES: &str = "\
Examples:
  tidegate demo          watch it for about a minute
  tidegate demo --fast   only the table, after a few seconds

Forty agents share one account of a simulated provider that allows 600 requests per minute, ten in
each second. First they call it directly, with the retries of an SDK; then through the gateway, with
the same code. No key is needed, nothing is sent beyond this machine, and no file is read or written.
With --fast, the clock is virtual and there are no sockets, so one seed always gives the same numbers.

Standard output has one table, or JSON with --json.";

/// Flags of `demo`.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Use virtual time: the same in a few seconds
    #[arg(long)]
    pub(crate) fast: bool,
    /// Seed of the work and the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) output: Output,
}
