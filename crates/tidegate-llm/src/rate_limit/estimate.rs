//! Estimates the usage of a call from earlier calls of its model.
//!
//! Input is counted with a generic tokenizer and corrected by the observed error for this model,
//! since few providers publish their vocabulary. For output a quantile of past outputs is reserved.
//! Both forget slowly, since programs change.

/// Decay per call: the factor reflects about the last hundred calls.
const MEMORY: f64 = 0.99;
/// Plausible range of the correction factor.
const FACTORS: std::ops::RangeInclusive<f64> = 0.2..=5.0;

/// Percentage of calls whose output must not exceed the reserve.
const QUANTILE: u32 = 75;
/// Output reserved before anything is known.
const FIRST_OUTPUT: u64 = 256;
/// Four bins per doubling, so a reserve is at most a fifth too large.
const BINS_PER_DOUBLING: f64 = 4.0;
const BINS: usize = 96;
/// After this many calls, all counts are halved.
const SAMPLE: u32 = 256;

/// Learned usage of one model.
#[derive(Clone, Debug)]
pub(crate) struct Estimator {
    /// Decayed sums of input tokens of past calls, as counted by the provider and by us.
    provider_counted: f64,
    we_counted: f64,
    outputs: Outputs,
}

impl Default for Estimator {
    fn default() -> Self {
        Self { provider_counted: 0.0, we_counted: 0.0, outputs: Outputs::default() }
    }
}

impl Estimator {
    /// Estimates input tokens from our own count.
    pub(crate) fn input(&self, counted: u64) -> u64 {
        round(to_f64(counted) * self.factor())
    }

    /// Returns the output tokens to reserve.
    pub(crate) fn output(&self) -> u64 {
        self.outputs.quantile(QUANTILE).unwrap_or(FIRST_OUTPUT)
    }

    /// Provider tokens per token counted by us.
    pub(crate) fn factor(&self) -> f64 {
        let factor = self.provider_counted / self.we_counted;
        if factor.is_finite() { factor.clamp(*FACTORS.start(), *FACTORS.end()) } else { 1.0 }
    }

    /// Records the usage of a call whose input we counted as `counted`.
    pub(crate) fn learn(&mut self, counted: u64, input: u64, output: u64) {
        if counted > 0 && input > 0 {
            self.provider_counted = self.provider_counted.mul_add(MEMORY, to_f64(input));
            self.we_counted = self.we_counted.mul_add(MEMORY, to_f64(counted));
        }
        self.outputs.add(output);
    }
}

/// Histogram of output lengths with exponential bins.
#[derive(Clone, Debug)]
struct Outputs {
    bins: Box<[u32; BINS]>,
    total: u32,
}

impl Default for Outputs {
    fn default() -> Self {
        Self { bins: Box::new([0; BINS]), total: 0 }
    }
}

impl Outputs {
    fn add(&mut self, tokens: u64) {
        if self.total >= SAMPLE {
            self.bins.iter_mut().for_each(|bin| *bin /= 2);
            self.total = self.bins.iter().sum();
        }
        self.bins[bin(tokens)] += 1;
        self.total += 1;
    }

    /// Returns the length that `percent` of outputs do not exceed.
    fn quantile(&self, percent: u32) -> Option<u64> {
        let target = (self.total * percent).div_ceil(100).max(1);
        let mut count = 0;
        let index = self.bins.iter().position(|bin| {
            count += bin;
            count >= target
        })?;
        let exponent = f64::from(u32::try_from(index).unwrap_or(u32::MAX)) / BINS_PER_DOUBLING;
        Some(round(exponent.exp2()))
    }
}

/// Index of the first bin whose upper end is at least `tokens`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut to the bins")]
fn bin(tokens: u64) -> usize {
    let exponent = to_f64(tokens.max(1)).log2() * BINS_PER_DOUBLING;
    (exponent.ceil() as usize).min(BINS - 1)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(super) fn to_f64(tokens: u64) -> f64 {
    tokens as f64
}

/// Rounds to whole tokens; NaN becomes zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn round(tokens: f64) -> u64 {
    tokens.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systematic_count_error_is_corrected() {
        let mut estimator = Estimator::default();
        assert_eq!(estimator.input(1_000), 1_000);
        for counted in [10_u64, 500, 80, 2_000, 100].into_iter().cycle().take(100) {
            estimator.learn(counted, counted * 13 / 10, 50);
        }
        assert!((1_295..=1_305).contains(&estimator.input(1_000)), "{}", estimator.input(1_000));
    }

    #[test]
    fn estimates_follow_changed_behaviour() {
        let mut estimator = Estimator::default();
        (0..1_000).for_each(|_| estimator.learn(100, 100, 10));
        (0..500).for_each(|_| estimator.learn(100, 150, 1_000));
        assert!(estimator.input(100) >= 148, "{}", estimator.input(100));
        assert!((1_000..=1_200).contains(&estimator.output()), "{}", estimator.output());
    }

    #[test]
    fn reserve_covers_three_of_four_calls() {
        let mut estimator = Estimator::default();
        assert_eq!(estimator.output(), FIRST_OUTPUT);
        for output in (1..=100).cycle().take(1_000) {
            estimator.learn(1, 1, output);
        }
        assert!((72..=95).contains(&estimator.output()), "{}", estimator.output());
    }

    #[test]
    fn absurd_counts_do_no_harm() {
        let mut estimator = Estimator::default();
        for (counted, input, output) in [(0, 7, 0), (u64::MAX, 1, u64::MAX), (1, u64::MAX, 1)] {
            estimator.learn(counted, input, output);
            assert!(FACTORS.contains(&estimator.factor()));
            let _ = (estimator.input(u64::MAX), estimator.output());
        }
    }
}
