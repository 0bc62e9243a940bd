//! What a call will use, learned from what calls of its model have used.
//!
//! The input is counted, and corrected by how far counts were off for this model: few providers
//! publish their vocabulary. The output nobody knows; a quantile of what it used to be is reserved
//! for it. Both forget slowly, since programs change.

/// How much one call weighs: the factor follows some hundred calls.
const MEMORY: f64 = 0.99;
/// Counts are off by less than this, or something else is wrong.
const FACTORS: std::ops::RangeInclusive<f64> = 0.2..=5.0;

/// Of a hundred calls, so many use no more output than is reserved for one.
const QUANTILE: u32 = 75;
/// Reserved for the output of the first call of a model.
const FIRST_OUTPUT: u64 = 256;
/// Four bins for every doubling: a reserve is at most a fifth too large.
const BINS_PER_DOUBLING: f64 = 4.0;
const BINS: usize = 96;
/// After so many calls old ones count half.
const SAMPLE: u32 = 256;

/// What was learned of one model.
#[derive(Clone, Debug)]
pub(crate) struct Estimator {
    /// Input tokens of past calls, as the provider counted and as we did; the past fades.
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
    /// Input tokens, from a count of ours.
    pub(crate) fn input(&self, counted: u64) -> u64 {
        round(to_f64(counted) * self.factor())
    }

    /// Output tokens to reserve.
    pub(crate) fn output(&self) -> u64 {
        self.outputs.quantile(QUANTILE).unwrap_or(FIRST_OUTPUT)
    }

    /// How many tokens the provider counts for one of ours.
    pub(crate) fn factor(&self) -> f64 {
        let factor = self.provider_counted / self.we_counted;
        if factor.is_finite() { factor.clamp(*FACTORS.start(), *FACTORS.end()) } else { 1.0 }
    }

    /// A call of which we counted the input so has used so much.
    pub(crate) fn learn(&mut self, counted: u64, input: u64, output: u64) {
        if counted > 0 && input > 0 {
            self.provider_counted = self.provider_counted.mul_add(MEMORY, to_f64(input));
            self.we_counted = self.we_counted.mul_add(MEMORY, to_f64(counted));
        }
        self.outputs.add(output);
    }
}

/// How often answers were how long, by bins that grow with the length.
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

    /// The length that so many percent do not exceed.
    fn quantile(&self, percent: u32) -> Option<u64> {
        let wanted = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let index = self.bins.iter().position(|bin| {
            seen += bin;
            seen >= wanted
        })?;
        let exponent = f64::from(u32::try_from(index).unwrap_or(u32::MAX)) / BINS_PER_DOUBLING;
        Some(round(exponent.exp2()))
    }
}

/// The bin whose upper end is the first not below.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut to the bins")]
fn bin(tokens: u64) -> usize {
    let exponent = to_f64(tokens.max(1)).log2() * BINS_PER_DOUBLING;
    (exponent.ceil() as usize).min(BINS - 1)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(super) fn to_f64(tokens: u64) -> f64 {
    tokens as f64
}

/// To whole tokens; what is not a number is none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn round(tokens: f64) -> u64 {
    tokens.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_off_is_corrected() {
        let mut estimator = Estimator::default();
        assert_eq!(estimator.input(1_000), 1_000);
        for counted in [10_u64, 500, 80, 2_000, 100].into_iter().cycle().take(100) {
            estimator.learn(counted, counted * 13 / 10, 50);
        }
        assert!((1_295..=1_305).contains(&estimator.input(1_000)), "{}", estimator.input(1_000));
    }

    #[test]
    fn a_model_that_changes_its_ways_is_followed() {
        let mut estimator = Estimator::default();
        (0..1_000).for_each(|_| estimator.learn(100, 100, 10));
        (0..500).for_each(|_| estimator.learn(100, 150, 1_000));
        assert!(estimator.input(100) >= 148, "{}", estimator.input(100));
        assert!((1_000..=1_200).contains(&estimator.output()), "{}", estimator.output());
    }

    #[test]
    fn the_reserve_is_just_above_what_three_of_four_use() {
        let mut estimator = Estimator::default();
        assert_eq!(estimator.output(), FIRST_OUTPUT);
        for output in (1..=100).cycle().take(1_000) {
            estimator.learn(1, 1, output);
        }
        assert!((72..=95).contains(&estimator.output()), "{}", estimator.output());
    }

    #[test]
    fn absurd_counts_are_survived() {
        let mut estimator = Estimator::default();
        for (counted, input, output) in [(0, 7, 0), (u64::MAX, 1, u64::MAX), (1, u64::MAX, 1)] {
            estimator.learn(counted, input, output);
            assert!(FACTORS.contains(&estimator.factor()));
            let _ = (estimator.input(u64::MAX), estimator.output());
        }
    }
}
