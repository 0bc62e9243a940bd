//! The program under attack in its own process, with its settings, memory and log.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Interval, interval};

use super::provider::PER_MINUTE;
use crate::machine;
use crate::server_process::Tidegate;

/// Interval between memory samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

/// Number of samples between two progress messages.
const SAMPLES_PER_MESSAGE: u32 = 150;

/// The running program, and its peak memory.
pub(super) struct RunningProgram {
    program: Tidegate,
    pub(super) http: SocketAddr,
    /// Resident bytes before the attack, and the peak.
    pub(super) memory: [u64; 2],
}

impl RunningProgram {
    pub(super) fn start(program: &Path, provider: SocketAddr) -> Result<Self> {
        let settings = format!(
            "[providers.openai]\nbase_url = \"http://{provider}\"\n\
             requests_per_minute = {PER_MINUTE}\nmax_concurrent_requests = 100\n\
             [limits.client]\ncapacity = 1000000\nrate = \"1000000/s\"\n"
        );
        let program = Tidegate::start(program, &settings)?;
        Ok(Self { http: program.http, program, memory: [0; 2] })
    }

    /// Starts sampling its memory.
    pub(super) fn watch(&mut self) -> MemoryWatch<'_> {
        self.memory[0] = self.resident();
        MemoryWatch { running: self, clock: interval(SAMPLE_INTERVAL), ticks: 0 }
    }

    /// Waits until the program has cleaned up after the attackers.
    pub(super) async fn settle(&mut self) {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }

    /// Whether the program is still running.
    pub(super) fn is_alive(&self) -> bool {
        self.resident() > 0
    }

    pub(super) fn log_bytes(&self) -> u64 {
        fs::metadata(self.program.log()).map_or(0, |log| log.len())
    }

    /// Number of panics in its log.
    pub(super) fn panics(&self) -> usize {
        let log = fs::read(self.program.log()).unwrap_or_default();
        String::from_utf8_lossy(&log).matches("panicked").count()
    }

    fn resident(&self) -> u64 {
        machine::resident_bytes_of(self.program.id()).unwrap_or(0)
    }
}

/// Records the peak memory and prints it from time to time.
pub(super) struct MemoryWatch<'s> {
    running: &'s mut RunningProgram,
    clock: Interval,
    ticks: u32,
}

impl MemoryWatch<'_> {
    pub(super) async fn tick(&mut self) {
        self.clock.tick().await;
        let now = self.running.resident();
        self.running.memory[1] = self.running.memory[1].max(now);
        self.ticks += 1;
        if self.ticks.is_multiple_of(SAMPLES_PER_MESSAGE) {
            let seconds = (SAMPLE_INTERVAL * self.ticks).as_secs();
            eprintln!("  {seconds} s: the program has {} MiB", now >> 20);
        }
    }
}
