//! How a command prints its result.

/// The flag of every command whose result a program may want.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Output {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
