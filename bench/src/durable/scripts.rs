//! Measurements that run in Node: the sweep of a shard, and the limiters of the npm package. The
//! scripts are beside the code that they measure, and print JSON.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// Latency of a shard that sweeps, beside the same shard without a sweep.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Sweep {
    pub(super) buckets: u64,
    pub(super) sweep_ms: f64,
    pub(super) normal: Latency,
    pub(super) during: Latency,
    pub(super) p99_ratio: f64,
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Latency {
    pub(super) requests: u64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// Times of limiters in one Node process.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Packages {
    pub(super) node: String,
    pub(super) decisions: u64,
    pub(super) rounds: u64,
    pub(super) results: Vec<PackageTime>,
}

/// Time of one limiter in one setting.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PackageTime {
    pub(super) keys: u64,
    /// `allowed`, `denied` or `mixed`.
    pub(super) mix: String,
    /// `async` or `sync`.
    pub(super) kind: String,
    pub(super) name: String,
    /// Nanoseconds per decision.
    pub(super) ns: f64,
}

/// Measures requests during sweeps of 100,000 buckets.
pub(super) fn sweep() -> Result<Sweep> {
    output(Command::new("node").arg("bench/sweep.mjs"), "worker")
}

/// Measures the memory limiter and its peers.
pub(super) fn packages() -> Result<Packages> {
    output(Command::new("npm").args(["run", "--silent", "bench"]), "clients/typescript")
}

/// Runs a script in a folder of the repository and parses what it prints.
fn output<T: for<'a> Deserialize<'a>>(command: &mut Command, folder: &str) -> Result<T> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    command.current_dir(root.join(folder)).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    serde_json::from_str(&text).with_context(|| format!("not the expected JSON: {text}"))
}
