//! Arguments of `simulate` and `suggest`.

use std::path::PathBuf;

use clap::{ArgGroup, ValueEnum};
use tidegate_replay::{DenyBelow, LogFormat, MaxWait, NamedPolicy};

pub(crate) const SIMULATE_EXAMPLES: &str = "\
Examples:
  tidegate simulate --log access.log --policy 'capacity=100,rate=50/s'
  tidegate simulate --log access.log.1.gz --log access.log --config tidegate.toml
  tidegate simulate --log access.log --search --deny-below 1% --html report.html
  zcat calls.json.gz | tidegate simulate --log - --key user --policy 'rate=1000/min' --json

A log is an access log in the common or combined format (key: the client's address), JSON lines or
CSV with the fields time, key and cost; it may be compressed with gzip. Only token buckets are
replayed. Every policy sees all requests of the log, also those that callers would not have sent
after a denial. A line that is earlier than one before it is decided as if the clock had stepped
back, which grants nothing. Lines that cannot be read are counted, and the first are reported.

Exit codes: 0 replayed, 1 the log cannot be read, or more than half of its lines cannot, 2 usage or
configuration error.";

pub(crate) const SUGGEST_EXAMPLES: &str = "\
Examples:
  tidegate suggest --log access.log
  tidegate suggest --log access.log > tidegate.toml && tidegate check tidegate.toml
  tidegate suggest --log calls.json --key user --cost-field tokens --json

Prints a configuration file: the suggested limit, and as comments what it and other choices would
have denied. The rate of a key is the cost of its busiest minute, its burst the smallest capacity
that denies it nothing at that rate. A choice takes a percentile of both over all keys; the
suggested limit is p99 and half as much again.";

/// Flags that say which logs to read, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Log to replay, repeatable, oldest first; - is standard input
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) log: Vec<PathBuf>,
    /// Format of the logs [default: recognized from their first lines]
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// What is limited: address, user, path or method of an access log; else the name of a field,
    /// such as client.id [default: address, or a usual name such as key, client_ip or user]
    #[arg(long, value_name = "NAME")]
    pub(crate) key: Option<String>,
    /// Field of the time [default: a usual name such as time, timestamp or ts]
    #[arg(long, value_name = "NAME")]
    pub(crate) time_field: Option<String>,
    /// Field of the cost; bytes in an access log [default: cost or tokens, else each request costs
    /// 1]
    #[arg(long, value_name = "NAME")]
    pub(crate) cost_field: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("policies").args(["policy", "config", "search"]).required(true).multiple(true))]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Token bucket to replay, repeatable: capacity=100,rate=50/s, after a name and a colon if you
    /// like
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Vec<NamedPolicy>,
    /// Replay the token buckets under [limits] in this configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Let callers wait up to this long, such as 2s, instead of denying them; at most 1h
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub(crate) wait: MaxWait,
    /// Search the smallest capacity for each of several rates
    #[arg(long)]
    pub(crate) search: bool,
    /// Share of denials that a search must stay below
    #[arg(long, value_name = "SHARE", default_value = "1%", requires = "search")]
    pub(crate) deny_below: DenyBelow,
    /// What that is a share of
    #[arg(long, default_value = "requests", requires = "search")]
    pub(crate) by: By,
    /// Write a report with plots to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SuggestArgs {
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Formats of logs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    Combined,
    Json,
    Csv,
}

impl From<Format> for LogFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Combined => Self::Combined,
            Format::Json => Self::Json,
            Format::Csv => Self::Csv,
        }
    }
}

/// What a search counts.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum By {
    Requests,
    Cost,
}
