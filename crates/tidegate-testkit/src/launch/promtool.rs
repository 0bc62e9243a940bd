//! Checks metrics, rules and configurations with Prometheus' own tool.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::programs;

/// Returns the problems that `promtool check metrics` finds in a text in format 0.0.4: syntax
/// errors, and names or help texts that break the conventions. Empty if there are none.
///
/// # Panics
/// If `promtool` is not installed or cannot be run.
pub fn check_metrics(text: &str) -> Vec<String> {
    let mut command = Command::new(programs::promtool());
    command.args(["check", "metrics"]).stdin(Stdio::piped());
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("cannot start promtool");
    // It prints nothing before it has read everything, so no pipe can fill up. If it stops reading
    // early, its output says why.
    let mut stdin = child.stdin.take().expect("a pipe");
    let _ = stdin.write_all(text.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("cannot wait for promtool");
    let output_lines = [output.stdout, output.stderr].concat();
    let mut output_lines: Vec<_> =
        String::from_utf8_lossy(&output_lines).lines().map(str::to_owned).collect();
    if output_lines.is_empty() && !output.status.success() {
        output_lines.push(format!("promtool exited with {}", output.status));
    }
    output_lines
}

/// Runs `promtool` with these arguments in a folder.
///
/// # Errors
/// If it finds problems. Returns its output.
///
/// # Panics
/// If `promtool` is not installed.
pub fn run_promtool(folder: &Path, args: &[&str]) -> Result<(), String> {
    let mut command = Command::new(programs::promtool());
    command.args(args).current_dir(folder).stdin(Stdio::null());
    let output = command.output().expect("cannot start promtool");
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}
