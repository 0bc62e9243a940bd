//! Decision time by number of keys.
//!
//! Keys are generated during the measurement; that time is also measured alone. The difference to
//! the baseline is our overhead; the growth of the baseline is due to memory.

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use crate::contender::Contender;
use crate::core::contenders::flat::flat;
use crate::core::contenders::gate::{KeyedLimiter, RandomKeys};
use crate::core::contenders::ours::StoreContender;
use crate::core::contenders::policy::NEW;
use crate::machine;
use crate::measure::{Answer, Effort, Figure, Worker, measure_interleaved};

const SIZES: [usize; 6] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
/// Upper bound of the memory per key of the store and the baseline together.
const BYTES_PER_KEY: u64 = 128;

/// Nanoseconds per decision with a number of keys.
#[derive(Debug)]
pub(in crate::core) struct Size {
    pub(in crate::core) keys: usize,
    pub(in crate::core) ours: Figure,
    pub(in crate::core) floor: Figure,
    /// Generating a key without a decision.
    pub(in crate::core) idle: Figure,
}

/// The sizes up to `largest` for which there is enough memory.
pub(in crate::core) fn sizes(largest: usize) -> impl Iterator<Item = usize> {
    let memory = machine::available_bytes().unwrap_or(u64::MAX);
    SIZES.into_iter().filter(move |keys| {
        *keys <= largest && (*keys as u64).saturating_mul(BYTES_PER_KEY) <= memory
    })
}

pub(in crate::core) fn steps(largest: usize, effort: Effort) -> usize {
    sizes(largest).count() * 3 * effort.runs
}

/// Whether no key was dropped. Two keys share a bucket with a probability of 2^-48, which gives
/// about eighteen pairs among a hundred million.
pub(in crate::core) fn are_all(stored: usize, keys: usize) -> bool {
    stored <= keys && keys - stored <= keys / 1_000_000
}

pub(in crate::core) fn measure(
    largest: usize,
    effort: Effort,
    progress: &ProgressBar,
) -> Result<Vec<Size>> {
    let measure = |keys| {
        progress.set_message(format!("filling with {keys} keys"));
        let ours = RandomKeys::fill(StoreContender::new(keys, NEW)?, keys);
        let stored = ours.gate.store.len();
        ensure!(are_all(stored, keys), "the store has {stored} of {keys} keys");
        let floor = RandomKeys::fill(flat(keys, NEW), keys);
        let idle = RandomKeys::fill(Idle, keys);
        progress.set_message(format!("{keys} keys"));
        let worker = |contender| vec![Worker { contender, order: &[] }];
        let contenders: [&dyn Contender; 3] = [&ours, &floor, &idle];
        let teams = contenders.map(worker).into();
        let figures = measure_interleaved(teams, Answer::Yes, effort, progress)?;
        let [ours, floor, idle] = figures.try_into().unwrap_or([Figure::UNKNOWN; 3]);
        Ok(Size { keys, ours, floor, idle })
    };
    sizes(largest).map(measure).collect()
}

/// Allows everything.
struct Idle;

impl KeyedLimiter for Idle {
    #[inline]
    fn allow(&self, _key: &String) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_stops_at_the_largest_size() {
        assert_eq!(sizes(100_000).collect::<Vec<_>>(), [1_000, 10_000, 100_000]);
    }

    #[test]
    fn keys_that_are_drawn_are_those_that_were_filled_in() {
        let drawn = RandomKeys::fill(StoreContender::new(1_000, NEW).unwrap(), 1_000);
        assert_eq!(drawn.decide(&[], 10_000), 10_000);
        assert_eq!(drawn.gate.store.len(), 1_000);
    }
}
