//! Bounds that the packaged program must keep: size, idle memory and start time.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::test::now;

/// Maximum size of the stripped program.
const MAX_BYTES: u64 = 25 * 1_000_000;

/// Maximum resident memory of an idle server, in KiB.
const MAX_RESIDENT_KIB: u64 = 15 * 1_024;

/// Maximum time from the start of the program to its first line on standard output.
const MAX_FIRST_LINE: Duration = Duration::from_millis(50);

/// Number of starts, of which the fastest counts: others were delayed by the machine.
const STARTS: usize = 10;

/// Prints what is measured, and fails if a bound is missed.
pub(super) fn check(program: &Path) -> Result<()> {
    let bytes = fs::metadata(program)?.len();
    let mut first_lines = Vec::new();
    for _ in 0..STARTS {
        first_lines.push(Server::start(program)?.first_line);
    }
    let first_line = first_lines.into_iter().min().unwrap_or_default();
    let resident = Server::start(program)?.idle_resident_kib()?;
    println!(
        "size {:.1} MB (at most {} MB), idle memory {:.1} MiB (at most {} MiB), \
         first line after {:.0} ms (at most {} ms)",
        bytes as f64 / 1e6,
        MAX_BYTES / 1_000_000,
        resident as f64 / 1_024.0,
        MAX_RESIDENT_KIB / 1_024,
        first_line.as_secs_f64() * 1e3,
        MAX_FIRST_LINE.as_millis(),
    );
    if bytes > MAX_BYTES || resident > MAX_RESIDENT_KIB || first_line > MAX_FIRST_LINE {
        bail!("the program misses a bound");
    }
    Ok(())
}

/// A running server, which is killed when it is dropped.
struct Server {
    child: Child,
    /// Held open: the program ends if it cannot print its other lines.
    stdout: BufReader<ChildStdout>,
    first_line: Duration,
}

impl Server {
    /// Starts the server and measures the time to its first line.
    fn start(program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--database", "none"]);
        for listener in ["--http", "--admin", "--grpc"] {
            command.args([listener, "127.0.0.1:0"]);
        }
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let started = now();
        let mut child = command.spawn().context("cannot start the program")?;
        let stdout = BufReader::new(child.stdout.take().context("the program has no output")?);
        let mut server = Self { child, stdout, first_line: Duration::MAX };
        let mut line = String::new();
        server.stdout.read_line(&mut line)?;
        server.first_line = started.elapsed();
        if !line.starts_with("http://") {
            bail!("the program printed {line:?} instead of its address");
        }
        Ok(server)
    }

    /// Returns the resident memory after a second.
    #[allow(clippy::disallowed_methods, reason = "what is measured is the passing of a second")]
    fn idle_resident_kib(&self) -> Result<u64> {
        let until: Instant = now() + Duration::from_secs(1);
        std::thread::sleep(until.saturating_duration_since(now()));
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|value| value.trim().strip_suffix(" kB"));
        resident.and_then(|value| value.parse().ok()).context("the kernel shows no VmRSS")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project;

    #[test]
    fn the_bounds_are_documented() {
        let page = fs::read_to_string(project::root().join("docs/install.md")).unwrap();
        let text = format!(
            "more than {} MB, if an idle server uses more than {} MiB, or if its first line takes \
             longer than {} ms",
            MAX_BYTES / 1_000_000,
            MAX_RESIDENT_KIB / 1_024,
            MAX_FIRST_LINE.as_millis()
        );
        assert!(page.contains(&text), "{text}");
    }
}
