//! Prometheus' own reader of metrics.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::programs;

/// What `promtool check metrics` finds wrong with a text in the format 0.0.4: whether it can be read,
/// and whether names and descriptions are as they should be. Nothing, if all is well.
///
/// # Panics
/// When `promtool` is not installed or cannot be run.
pub fn check_metrics(text: &str) -> Vec<String> {
    let mut command = Command::new(programs::promtool());
    command.args(["check", "metrics"]).stdin(Stdio::piped());
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("promtool can be started");
    // It says nothing before it has read everything, so no pipe fills up meanwhile. If it stops
    // reading, it says why.
    let mut stdin = child.stdin.take().expect("a pipe");
    let _ = stdin.write_all(text.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    let mut said: Vec<_> = String::from_utf8_lossy(&said).lines().map(str::to_owned).collect();
    if said.is_empty() && !output.status.success() {
        said.push(format!("promtool ended with {}", output.status));
    }
    said
}
