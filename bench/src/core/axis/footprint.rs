//! Bytes per key, measured in a separate process for every size.
//!
//! An allocator reuses memory it has kept, which would hide growth; a new process has kept none.
//! Keys are generated one at a time for the same reason.

use std::fmt;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use indicatif::ProgressBar;

use crate::core::axis::growth::are_all;
use crate::core::contenders::flat::flat;
use crate::core::contenders::gate::{KeyedLimiter, named};
use crate::core::contenders::governors;
use crate::core::contenders::ours::StoreContender;
use crate::core::contenders::policy::NEW;
use crate::machine;
use crate::measure::as_float;

const SIZES: [usize; 9] =
    [10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000];
/// The size at which peers are measured.
const COMPARED_AT: usize = 1_000_000;

/// The measured limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    Tidegate,
    Governor,
    Floor,
}

impl Subject {
    pub(in crate::core) const fn name(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Governor => "governor as it comes",
            Self::Floor => "floor: flat table",
        }
    }
}

/// Memory use of a number of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::core) struct Footprint {
    pub(in crate::core) subject: Subject,
    pub(in crate::core) keys: usize,
    pub(in crate::core) bytes: Bytes,
}

/// Total bytes; `None` if the system or the limiter does not report them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) struct Bytes {
    resident: Option<u64>,
    reported: Option<u64>,
}

impl Footprint {
    /// Growth of the process in bytes per key.
    pub(in crate::core) fn resident(&self) -> Option<f64> {
        self.bytes.resident.map(|bytes| as_float(bytes) / as_float(self.keys as u64))
    }

    /// Bytes per key reported by the store.
    pub(in crate::core) fn reported(&self) -> Option<f64> {
        self.bytes.reported.map(|bytes| as_float(bytes) / as_float(self.keys as u64))
    }
}

fn plan() -> impl Iterator<Item = (Subject, usize)> {
    let ours = SIZES.into_iter().map(|keys| (Subject::Tidegate, keys));
    ours.chain([(Subject::Governor, COMPARED_AT), (Subject::Floor, COMPARED_AT)])
}

pub(in crate::core) fn steps() -> usize {
    plan().count()
}

pub(in crate::core) fn measure(progress: &ProgressBar) -> Result<Vec<Footprint>> {
    let measure = |(subject, keys): (Subject, usize)| {
        progress.set_message(format!("memory of {keys} keys"));
        let bytes = in_child_process(subject, keys)?;
        progress.inc(1);
        Ok(Footprint { subject, keys, bytes })
    };
    plan().map(measure).collect()
}

/// Runs this program in a child process for one size, and parses its output.
fn in_child_process(subject: Subject, keys: usize) -> Result<Bytes> {
    let name = subject.to_possible_value().context("a subject without a name")?;
    let output = Command::new(std::env::current_exe()?)
        .args(["core-memory", name.get_name(), &keys.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the memory measurement of {} failed", subject.name());
    let text = String::from_utf8(output.stdout)?;
    Bytes::read(&text).with_context(|| format!("not a number of bytes: {text:?}"))
}

/// Inserts this many keys in this process, and prints their memory use.
pub(crate) fn alone(subject: Subject, keys: usize) -> Result<()> {
    ensure!(keys > 0, "the number of keys must not be zero");
    println!("{}", fill(subject, keys)?);
    Ok(())
}

fn fill(subject: Subject, keys: usize) -> Result<Bytes> {
    match subject {
        Subject::Tidegate => {
            let (bank, resident) = grow(keys, || StoreContender::new(keys, NEW))?;
            let stats = bank.store.stats();
            ensure!(are_all(stats.keys, keys), "the store has {} of {keys} keys", stats.keys);
            Ok(Bytes { resident, reported: Some(stats.memory_bytes as u64) })
        }
        Subject::Governor => {
            let (_, resident) = grow(keys, || governors::as_it_comes(NEW))?;
            Ok(Bytes { resident, reported: None })
        }
        Subject::Floor => {
            let (_, resident) = grow(keys, || Ok(flat(keys, NEW)))?;
            Ok(Bytes { resident, reported: None })
        }
    }
}

/// Inserts this many keys into a limiter, and returns it with the growth of the process.
fn grow<G: KeyedLimiter>(
    keys: usize,
    gate: impl FnOnce() -> Result<G>,
) -> Result<(G, Option<u64>)> {
    let mut buffer = named(0, &mut String::new()).clone();
    let before = machine::anonymous_bytes();
    let gate = gate()?;
    for number in 0..keys {
        gate.allow(named(number, &mut buffer));
    }
    let after = machine::anonymous_bytes();
    Ok((gate, after.zip(before).map(|(after, before)| after.saturating_sub(before))))
}

impl Bytes {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace().map(|word| match word {
            "unknown" => Some(None),
            number => number.parse().ok().map(Some),
        });
        Some(Self { resident: words.next()??, reported: words.next()?? })
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word =
            |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), |bytes| bytes.to_string());
        write!(f, "{} {}", word(self.resident), word(self.reported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_prints_is_read_back() {
        for reported in [None, Some(42)] {
            let bytes = Bytes { resident: Some(7), reported };
            assert_eq!(Bytes::read(&bytes.to_string()), Some(bytes));
        }
        assert_eq!(Bytes::read("7"), None);
        assert_eq!(Bytes::read("many few"), None);
    }

    #[test]
    fn every_subject_takes_memory_for_its_keys() {
        for subject in Subject::value_variants() {
            let bytes = fill(*subject, 20_000).unwrap();
            assert!(bytes.resident.is_none_or(|bytes| bytes < 1 << 30), "{bytes:?}");
            assert!(bytes.reported.is_none_or(|bytes| bytes > 20_000), "{bytes:?}");
        }
    }
}
