//! Distribution of durations in bounded memory.
//!
//! A histogram whose bins are at most 1/128 of their value wide, so percentiles are at most 0.8 %
//! too high and never too low. The maximum is exact.

use std::time::Duration;

/// Bins per power of two, as a power of two.
const PRECISION: u32 = 7;

/// Counts durations.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    bins: Vec<u64>,
    count: u64,
    max: u64,
}

impl Distribution {
    /// Counts a duration.
    pub fn add(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bin = bin(nanos);
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += 1;
        self.count += 1;
        self.max = self.max.max(nanos);
    }

    /// Returns the number of durations.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the largest duration.
    #[must_use]
    pub const fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Returns a duration that at least `percent` of 100 durations do not exceed: the upper end of
    /// the bin of the smallest such duration. Zero if there are none.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Duration {
        let rank = nearest_rank(self.count, percent);
        let mut seen = 0;
        for (bin, count) in self.bins.iter().enumerate() {
            seen += count;
            if seen >= rank && *count > 0 {
                return Duration::from_nanos(upper_end(bin).min(self.max));
            }
        }
        Duration::ZERO
    }

    /// Returns the number of durations up to each bound, and above the last. A duration counts as
    /// the upper end of its bin.
    #[must_use]
    pub fn between(&self, bounds: &[Duration]) -> Vec<u64> {
        let mut counts = vec![0; bounds.len() + 1];
        for (bin, count) in self.bins.iter().enumerate().filter(|(_, count)| **count > 0) {
            let end = Duration::from_nanos(upper_end(bin).min(self.max));
            counts[bounds.partition_point(|bound| *bound < end)] += count;
        }
        counts
    }
}

/// Returns the rank of a percentile in `count` sorted values, from 1.
pub(crate) fn nearest_rank(count: u64, percent: u64) -> u64 {
    let rank = (u128::from(count) * u128::from(percent)).div_ceil(100).max(1);
    u64::try_from(rank).unwrap_or(count)
}

/// Values below `2^PRECISION` have bins of their own; above, each power of two has as many bins.
fn bin(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(PRECISION + 1);
    let (shift, top) = (u64::from(shift), value >> shift);
    usize::try_from((shift << PRECISION) + top).unwrap_or(usize::MAX)
}

fn upper_end(bin: usize) -> u64 {
    let (bin, width) = (bin as u64, 1_u64 << PRECISION);
    if bin < 2 * width {
        return bin;
    }
    let shift = (bin >> PRECISION) - 1;
    let top = bin - (shift << PRECISION);
    // The last bin ends at the largest value.
    let end = u128::from(top + 1) << shift;
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_their_values_and_are_narrow() {
        let values = (0..2_000).chain((0..64).flat_map(|bit| {
            let power = 1_u64 << bit;
            [power - 1, power, power.saturating_add(power / 3)]
        }));
        for value in values.chain([u64::MAX]) {
            let end = upper_end(bin(value));
            assert!(end >= value && end - value <= value / 128, "{value} {end}");
            assert!(bin(value) == 0 || upper_end(bin(value) - 1) < value, "{value}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let mut times = Distribution::default();
        assert_eq!(times.percentile(99), Duration::ZERO);
        for nanos in 1..=100 {
            times.add(Duration::from_nanos(nanos));
        }
        for percent in [1, 50, 90, 99, 100] {
            assert_eq!(times.percentile(percent), Duration::from_nanos(percent));
        }
        times.add(Duration::from_secs(1_000));
        assert_eq!(times.percentile(100), Duration::from_secs(1_000));
        let nanos = Duration::from_nanos;
        assert_eq!(times.between(&[nanos(10), nanos(100)]), [10, 90, 1]);
    }
}
