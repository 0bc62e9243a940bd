//! A skewed distribution of requests over keys.

use crate::keys::SplitMix;
use crate::measure::as_float;

/// Zipf's law with exponent 1: the n-th key has a weight of 1/n.
#[derive(Debug)]
pub(in crate::core) struct Zipf {
    /// Cumulative weights.
    cumulative: Vec<f64>,
}

impl Zipf {
    pub(in crate::core) fn of(keys: usize) -> Self {
        let mut total = 0.0;
        let weigh = |rank: usize| {
            total += 1.0 / as_float(rank as u64);
            total
        };
        Self { cumulative: (1..=keys).map(weigh).collect() }
    }

    /// The number of a key, from zero.
    pub(in crate::core) fn draw(&self, random: &mut SplitMix) -> usize {
        let total = self.cumulative.last().copied().unwrap_or_default();
        let point = random.unit() * total;
        let after = self.cumulative.partition_point(|weight| *weight <= point);
        after.min(self.cumulative.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenth_key_is_asked_for_a_tenth_as_often_as_the_first() {
        let zipf = Zipf::of(1_000);
        let mut random = SplitMix(7);
        let mut counts = vec![0_u64; 1_000];
        for _ in 0..1_000_000 {
            counts[zipf.draw(&mut random)] += 1;
        }
        // The weights of a thousand keys add up to 7.485.
        let share = |rank: usize| as_float(counts[rank - 1]) / 1e6 * 7.485 * as_float(rank as u64);
        for rank in [1, 2, 10, 100] {
            assert!((0.95..1.05).contains(&share(rank)), "{rank}: {}", share(rank));
        }
        assert!(counts[900..].iter().sum::<u64>() > 0);
    }
}
