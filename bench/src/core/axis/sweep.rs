//! Removing the keys whose bucket is full again from a million keys.

use std::time::Duration;

use anyhow::{Result, ensure};
use governor::RateLimiter;
use governor::clock::FakeRelativeClock;
use indicatif::ProgressBar;
use tidegate_memory::clock::ManualClock;

use crate::core::contenders::gate::KeyedLimiter;
use crate::core::contenders::ours::{self, StoreContender};
use crate::core::contenders::policy::NEW;
use crate::measure::{Figure, summary};
use crate::stopwatch::Stopwatch;
use crate::{keys, machine};

const KEYS: usize = 1_000_000;
/// Time after which every bucket is full again.
const LONG: Duration = Duration::from_secs(2 * NEW.period.as_secs());

/// The share of keys to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Stale {
    All,
    None,
}

impl Stale {
    pub(in crate::core) const EVERY: [Self; 2] = [Self::All, Self::None];

    pub(in crate::core) const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::None => "none",
        }
    }

    const fn left(self, keys: usize) -> usize {
        match self {
            Self::All => 0,
            Self::None => keys,
        }
    }
}

/// Milliseconds for a sweep.
#[derive(Debug)]
pub(in crate::core) struct Sweep {
    pub(in crate::core) stale: Stale,
    pub(in crate::core) ours: Figure,
    pub(in crate::core) governor: Figure,
}

pub(in crate::core) const fn steps(passes: usize) -> usize {
    Stale::EVERY.len() * passes
}

pub(in crate::core) fn measure(passes: usize, progress: &ProgressBar) -> Result<Vec<Sweep>> {
    let keys = keys::first(KEYS);
    let measure = |stale: Stale| {
        progress.set_message(format!("sweeping, {} stale", stale.name()));
        let (mut by_us, mut by_governor) = (Vec::new(), Vec::new());
        for _ in 0..passes {
            by_us.push(sweep_ours(&keys, stale)?);
            by_governor.push(sweep_governor(&keys, stale)?);
            progress.inc(1);
        }
        let [ours, governor] = [by_us, by_governor].map(|millis| summary(&millis, 0));
        Ok(Sweep { stale, ours, governor })
    };
    machine::on_core(machine::cores().first().copied(), || {
        Stale::EVERY.into_iter().map(measure).collect()
    })
}

fn sweep_ours(keys: &[String], stale: Stale) -> Result<f64> {
    let clock = ManualClock::new();
    let bank = StoreContender::on(ours::store(keys.len()).clock(clock.clone()), NEW)?;
    let pass_time = || clock.advance(LONG);
    let sweep = || bank.store.cleanup_stale(Duration::ZERO);
    timed(&bank, keys, stale, pass_time, sweep, || bank.store.len())
}

fn sweep_governor(keys: &[String], stale: Stale) -> Result<f64> {
    let clock = FakeRelativeClock::default();
    let limiter = RateLimiter::dashmap_with_clock(NEW.quota()?, clock.clone());
    let pass_time = || clock.advance(LONG);
    timed(&limiter, keys, stale, pass_time, || limiter.retain_recent(), || limiter.len())
}

/// Inserts the keys into a limiter, and measures a sweep in milliseconds.
fn timed<T>(
    gate: &impl KeyedLimiter,
    keys: &[String],
    stale: Stale,
    pass_time: impl FnOnce(),
    sweep: impl FnOnce() -> T,
    left: impl FnOnce() -> usize,
) -> Result<f64> {
    for key in keys {
        gate.allow(key);
    }
    if stale == Stale::All {
        pass_time();
    }
    let stopwatch = Stopwatch::start();
    sweep();
    let millis = stopwatch.elapsed().as_secs_f64() * 1e3;
    let (left, wanted) = (left(), stale.left(keys.len()));
    ensure!(left == wanted, "a sweep left {left} keys, expected {wanted}");
    Ok(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_removes_what_is_stale_and_nothing_else() {
        let keys = keys::first(1_000);
        for stale in Stale::EVERY {
            assert!(sweep_ours(&keys, stale).unwrap() >= 0.0);
            assert!(sweep_governor(&keys, stale).unwrap() >= 0.0);
        }
    }
}
