//! Inserting new keys: total time, and maximum time for one key.
//!
//! All contenders start empty and grow. The total is the cost of a flood of new clients; the
//! maximum is the pause while a table grows.

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use tidegate_memory::clock::Clock;

use crate::core::contenders::gate::KeyedLimiter;
use crate::core::contenders::ours::StoreContender;
use crate::core::contenders::policy::NEW;
use crate::core::contenders::role::Role;
use crate::core::contenders::{clocks, governors};
use crate::measure::{Figure, as_float, summary};
use crate::stopwatch::Stopwatch;
use crate::{keys, machine};

const KEYS: usize = 1_000_000;
const ROLES: [Role; 2] = [Role::Spend, Role::Governor];

/// Maximum pauses of several passes, in microseconds.
#[derive(Debug)]
pub(in crate::core) struct Pauses {
    /// The pause that one key in a thousand exceeds.
    pub(in crate::core) one_in_a_thousand: Figure,
    /// The maximum of each pass. Other load on the machine only increases it, so the smallest one
    /// says most about the limiter.
    pub(in crate::core) longest: Figure,
}

pub(in crate::core) const fn steps(passes: usize) -> usize {
    ROLES.len() * passes
}

/// Nanoseconds per key.
pub(in crate::core) fn measure(
    passes: usize,
    progress: &ProgressBar,
) -> Result<Vec<(Role, Figure)>> {
    let keys = keys::first(KEYS);
    let pass = |role: Role| {
        let contender = role.enter(KEYS, NEW)?;
        let stopwatch = Stopwatch::start();
        contender.decide(&keys, KEYS as u64);
        Ok(stopwatch.elapsed().as_secs_f64() * 1e9 / as_float(KEYS as u64))
    };
    let passes = measure_shared("new keys", passes, progress, pass)?;
    Ok(passes.into_iter().map(|(role, nanos)| (role, summary(&nanos, 0))).collect())
}

/// Pauses of single keys.
pub(in crate::core) fn pauses(
    passes: usize,
    progress: &ProgressBar,
) -> Result<Vec<(Role, Pauses)>> {
    let keys = keys::first(KEYS);
    let pass = |role: Role| match role {
        Role::Governor => one_by_one(&governors::as_it_comes(NEW)?, &keys),
        _ => one_by_one(&StoreContender::new(KEYS, NEW)?, &keys),
    };
    let passes = measure_shared("new keys, one by one", passes, progress, pass)?;
    let pauses = passes.into_iter().map(|(role, waits)| {
        let column = |place: usize| waits.iter().map(|wait| wait[place]).collect::<Vec<_>>();
        let [one_in_a_thousand, longest] = [0, 1].map(|place| summary(&column(place), 0));
        (role, Pauses { one_in_a_thousand, longest })
    });
    Ok(pauses.collect())
}

/// Measures all contenders alternately, pass by pass, on one core.
fn measure_shared<T: Send>(
    what: &'static str,
    passes: usize,
    progress: &ProgressBar,
    pass: impl Fn(Role) -> Result<T> + Sync,
) -> Result<Vec<(Role, Vec<T>)>> {
    machine::on_core(machine::cores().first().copied(), || {
        let mut rows = ROLES.map(|role| (role, Vec::new()));
        for _ in 0..passes {
            for (role, row) in &mut rows {
                progress.set_message(what);
                row.push(pass(*role)?);
                progress.inc(1);
            }
        }
        Ok(rows.into())
    })
}

/// The pause that one key in a thousand exceeds, and the maximum, in microseconds.
fn one_by_one(gate: &impl KeyedLimiter, keys: &[String]) -> Result<[f64; 2]> {
    let clock = clocks::exact();
    // Written beforehand, so that page faults of this memory are not measured.
    let mut waits = vec![u64::MAX; keys.len()];
    let mut before = clock.now();
    for (key, wait) in keys.iter().zip(&mut waits) {
        gate.allow(key);
        let now = clock.now();
        *wait = now.as_nanos().saturating_sub(before.as_nanos());
        before = now;
    }
    longest(&mut waits).context("no keys")
}

fn longest(nanos: &mut [u64]) -> Option<[f64; 2]> {
    nanos.sort_unstable();
    let beyond = nanos.len() / 1_000;
    let micros = |nanos: &u64| as_float(*nanos) / 1e3;
    Some([micros(nanos.get(nanos.len().checked_sub(1 + beyond)?)?), micros(nanos.last()?)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wait_in_a_thousand_is_longer() {
        let mut nanos: Vec<u64> = (1..=10_000).rev().map(|n| n * 1_000).collect();
        assert_eq!(longest(&mut nanos), Some([9_990.0, 10_000.0]));
        assert_eq!(longest(&mut [7_000]), Some([7.0, 7.0]));
        assert_eq!(longest(&mut []), None);
    }

    #[test]
    fn every_new_key_is_timed_and_spent() {
        let keys = keys::first(100);
        let bank = StoreContender::new(100, NEW).unwrap();
        let [usual, longest] = one_by_one(&bank, &keys).unwrap();
        assert!(usual <= longest && longest < 1e6);
        assert_eq!(bank.store.len(), 100);
    }
}
