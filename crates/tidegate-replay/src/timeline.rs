//! Counts over time in bounded memory.
//!
//! A fixed number of bins of one second each; when time goes beyond the last, each two become one.

use tidegate_core::Time;

const BINS: u64 = 256;
const SECOND: u64 = 1_000_000_000;

/// Admitted and denied requests of one policy in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Number of admitted requests.
    pub admitted: u64,
    /// Number of denied requests.
    pub denied: u64,
}

/// Counts of several policies over time.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Time of the first event.
    start: Option<Time>,
    /// Width of a bin: two to this power, in seconds.
    doublings: u32,
    /// Bins of all policies, by policy.
    bins: Vec<Vec<Bin>>,
}

impl Timeline {
    pub(crate) fn new(policies: usize) -> Self {
        Self { start: None, doublings: 0, bins: vec![Vec::new(); policies] }
    }

    /// Returns the index of the bin of an event. An event before the first one is in the first bin.
    #[inline]
    pub(crate) fn bin(&mut self, time: Time) -> usize {
        let start = *self.start.get_or_insert(time);
        let seconds = time.as_nanos().saturating_sub(start.as_nanos()) / SECOND;
        while seconds >> self.doublings >= BINS {
            self.double();
        }
        // Below the number of bins.
        let index = usize::try_from(seconds >> self.doublings).unwrap_or_default();
        if self.bins.first().is_some_and(|bins| index >= bins.len()) {
            self.bins.iter_mut().for_each(|bins| bins.resize(index + 1, Bin::default()));
        }
        index
    }

    #[inline]
    pub(crate) fn bin_mut(&mut self, policy: usize, index: usize) -> &mut Bin {
        &mut self.bins[policy][index]
    }

    fn double(&mut self) {
        self.doublings += 1;
        for bins in &mut self.bins {
            let sum = |pair: &[Bin]| Bin {
                admitted: pair.iter().map(|bin| bin.admitted).sum(),
                denied: pair.iter().map(|bin| bin.denied).sum(),
            };
            *bins = bins.chunks(2).map(sum).collect();
        }
    }

    /// Returns the start of the first bin.
    #[must_use]
    pub const fn start(&self) -> Option<Time> {
        self.start
    }

    /// Returns the width of a bin in seconds.
    #[must_use]
    pub const fn bin_seconds(&self) -> u64 {
        1 << self.doublings
    }

    /// Returns the bins of a policy.
    #[must_use]
    pub fn bins(&self, policy: usize) -> &[Bin] {
        &self.bins[policy]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_widen_and_keep_every_count() {
        let mut line = Timeline::new(1);
        for second in 0..10_000_u64 {
            let index = line.bin(Time::from_nanos((100 + second) * SECOND));
            line.bin_mut(0, index).admitted += 1;
        }
        let early = line.bin(Time::from_nanos(SECOND));
        line.bin_mut(0, early).denied += 1;
        assert_eq!(line.start(), Some(Time::from_nanos(100 * SECOND)));
        assert_eq!((line.bin_seconds(), line.bins(0).len()), (64, 157));
        assert!(line.bins(0)[..156].iter().all(|bin| bin.admitted == 64));
        assert_eq!(line.bins(0)[156].admitted, 10_000 % 64);
        assert_eq!(line.bins(0)[0].denied, 1);
    }
}
