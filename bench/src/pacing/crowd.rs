//! Many waiters on one key: their memory, and the rate of grants.
//!
//! Each crowd has a separate process of this program, with a runtime of two workers. All tasks wait
//! first; then the limiter opens, and the time runs until the last grant. How it opens differs
//! between the contenders and is stated in the table.

mod ours;
mod peers;

use std::fmt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::machine;
use crate::measure::as_float;

/// Tokens per second of contenders with a rate, which bounds their grants per second.
const RATE: u32 = 1_000_000;
/// Tokens in a full bucket: one millisecond at that rate.
const BURST: u32 = 1_000;
/// Timeout of a crowd.
const TIMEOUT: Duration = Duration::from_secs(100);

/// The rows of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A pacer on a limiter with a rate.
    OursRate,
    LeakyBucket,
    Governor,
    /// A pacer with a concurrency of one.
    OursSlot,
    Semaphore,
    /// governor with a quota that does not open; for memory only.
    GovernorParked,
    /// Tasks that wait at a `Notify`; for memory only.
    Baseline,
}

impl Role {
    pub(super) const ALL: [Self; 7] = [
        Self::OursRate,
        Self::LeakyBucket,
        Self::Governor,
        Self::OursSlot,
        Self::Semaphore,
        Self::GovernorParked,
        Self::Baseline,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OursRate => "tidegate `Pacer`, rate",
            Self::OursSlot => "tidegate `Pacer`, concurrency of 1",
            Self::Semaphore => "tokio `Semaphore` of 1",
            Self::LeakyBucket => "leaky-bucket",
            Self::Governor => "governor `until_ready`",
            Self::GovernorParked => "governor `until_ready`, 1 per hour",
            Self::Baseline => "baseline: tokio `Notify`",
        }
    }

    /// How the contender is kept closed, and opened.
    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::OursRate => {
                "1 M/s, capacity 1,000. The key is held for an hour, then reset, emptied and the \
                 pacer nudged. First come, first served"
            }
            Self::LeakyBucket => {
                "1,000 per ms, max 1,000, fair. The first in the queue wants 1,000,000 tokens; the \
                 time runs from its grant. First come, first served"
            }
            Self::Governor => {
                "1 M/s, burst 1,000, emptied. Cannot be kept closed: tasks wait at a `Notify` and \
                 ask when it opens, which is in the time. No queue: each sleeps and asks again"
            }
            Self::OursSlot => {
                "One permit is out and then dropped; each hands the slot to the next. A limiter \
                 that never runs out is charged as well"
            }
            Self::Semaphore => "No permits, then one; each hands it to the next",
            Self::GovernorParked | Self::Baseline => "Is not opened",
        }
    }

    /// Our comparable contender.
    pub(super) const fn ours(self) -> Self {
        match self {
            Self::OursSlot | Self::Semaphore => Self::OursSlot,
            _ => Self::OursRate,
        }
    }
}

/// Results of a run; `None` if not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Run {
    /// Growth of the process while the crowd arrived, in bytes.
    grown: Option<u64>,
    /// Time from the opening to the last grant.
    drained: Option<Duration>,
}

impl Run {
    /// Grants per second.
    pub(super) fn grants(self, waiters: usize) -> Option<f64> {
        self.drained.map(|drained| as_float(waiters as u64) / drained.as_secs_f64())
    }

    /// Bytes per waiter.
    pub(super) fn bytes(self, waiters: usize) -> Option<f64> {
        self.grown.map(|grown| as_float(grown) / as_float(waiters as u64))
    }

    fn read(text: &str) -> Option<Self> {
        let (grown, drained) = text.trim().split_once(' ')?;
        let number = |text: &str| match text {
            "-" => Some(None),
            digits => digits.parse().ok().map(Some),
        };
        Some(Self { grown: number(grown)?, drained: number(drained)?.map(Duration::from_nanos) })
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |number: Option<u128>| number.map_or("-".to_owned(), |n| n.to_string());
        let drained = self.drained.map(|drained| drained.as_nanos());
        write!(f, "{} {}", number(self.grown.map(u128::from)), number(drained))
    }
}

/// Runs one crowd in a child process, and parses its output.
pub(super) fn in_child_process(role: Role, waiters: usize) -> Result<Run> {
    let place = Role::ALL.iter().position(|other| *other == role).unwrap_or_default();
    let output = Command::new(std::env::current_exe()?)
        .args(["crowd", &place.to_string(), &waiters.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the crowd of {} failed", role.name());
    let text = String::from_utf8(output.stdout)?;
    Run::read(&text).with_context(|| format!("not a result of a crowd: {text:?}"))
}

/// Runs one crowd in this process and prints the result.
pub(crate) fn alone(role: usize, waiters: usize) -> Result<()> {
    let role = *Role::ALL.get(role).context("unknown role")?;
    ensure!(waiters > 0, "the number of waiters must not be zero");
    println!("{}", run(role, waiters)?);
    Ok(())
}

fn run(role: Role, waiters: usize) -> Result<Run> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let run = runtime.block_on(async {
        match role {
            Role::OursRate => timeout(TIMEOUT, ours::rate(waiters)).await,
            Role::OursSlot => timeout(TIMEOUT, ours::slot(waiters)).await,
            Role::Semaphore => timeout(TIMEOUT, peers::semaphore(waiters)).await,
            Role::LeakyBucket => timeout(TIMEOUT, peers::leaky_bucket(waiters)).await,
            Role::Governor => timeout(TIMEOUT, peers::governor(waiters)).await,
            Role::GovernorParked => timeout(TIMEOUT, peers::governor_parked(waiters)).await,
            Role::Baseline => timeout(TIMEOUT, peers::baseline(waiters)).await,
        }
    });
    // Do not wait for tasks that still wait.
    runtime.shutdown_background();
    run.with_context(|| format!("{} took longer than {TIMEOUT:?}", role.name()))?
}

/// Growth of the process since then, in bytes.
fn grown(before: Option<u64>) -> Option<u64> {
    machine::resident_bytes().zip(before).map(|(now, before)| now.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crowd_is_let_through() {
        for role in Role::ALL {
            let run = run(role, 2_000).unwrap();
            let opened = !matches!(role, Role::GovernorParked | Role::Baseline);
            assert_eq!(run.drained.is_some(), opened, "{}", role.name());
        }
    }

    #[test]
    fn what_a_process_prints_can_be_read() {
        for run in [
            Run::default(),
            Run { grown: Some(7), drained: Some(Duration::from_micros(3)) },
            Run { grown: Some(0), drained: None },
        ] {
            assert_eq!(Run::read(&format!("{run}\n")), Some(run));
        }
        assert_eq!(Run::read("nonsense"), None);
    }

    #[test]
    fn roles_compare_with_ours() {
        for role in Role::ALL {
            assert_eq!(role.ours().ours(), role.ours());
        }
    }
}
