//! A lock-free histogram: recording is two atomic additions.
//!
//! Recorded values are integers (nanoseconds, tokens, retries); `scale` converts them to the unit
//! of the metric.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000 * MICRO;
const SECOND: u64 = 1_000 * MILLI;

/// The bucket layout of a histogram.
#[derive(Debug)]
pub(super) struct Buckets {
    /// Upper bounds in ascending order. There is one more bucket above the last.
    bounds: &'static [u64],
    /// Factor from the unit of the bounds to the unit of the metric.
    scale: f64,
}

/// Decision times: from ten microseconds in process to a second with a shared store.
pub(super) static DECISIONS: Buckets = Buckets {
    bounds: &[
        10 * MICRO,
        25 * MICRO,
        50 * MICRO,
        100 * MICRO,
        250 * MICRO,
        500 * MICRO,
        MILLI,
        2_500 * MICRO,
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        100 * MILLI,
        250 * MILLI,
        SECOND,
    ],
    scale: 1e-9,
};

/// Waiting times for providers: up to minutes.
pub(super) static WAITS: Buckets = Buckets {
    bounds: &[
        MILLI,
        10 * MILLI,
        50 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        SECOND,
        2_500 * MILLI,
        5 * SECOND,
        10 * SECOND,
        20 * SECOND,
        30 * SECOND,
        60 * SECOND,
        120 * SECOND,
        300 * SECOND,
    ],
    scale: 1e-9,
};

/// Tokens of a call.
pub(super) static TOKENS: Buckets = Buckets {
    bounds: &[16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576],
    scale: 1.0,
};

/// Retries of a call.
pub(super) static RETRIES: Buckets =
    Buckets { bounds: &[0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20], scale: 1.0 };

/// A histogram. Cheap to clone; clones share their counts.
#[derive(Clone)]
pub(super) struct Histogram(Arc<Inner>);

struct Inner {
    buckets: &'static Buckets,
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    pub(super) fn new(buckets: &'static Buckets) -> Self {
        let counts = (0..=buckets.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Inner { buckets, counts, sum: AtomicU64::new(0) }))
    }

    pub(super) fn record(&self, value: u64) {
        let bucket = self.0.buckets.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.0.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.0.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Records a duration in a histogram of nanoseconds.
    pub(super) fn record_span(&self, span: Duration) {
        self.record(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram").field("counts", &self.0.counts).finish_non_exhaustive()
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Buckets { bounds, scale } = *self.0.buckets;
        let bounds = bounds.iter().map(|bound| to_f64(*bound) * scale).chain([f64::INFINITY]);
        let counts = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        // Computed from the values just read, so that it agrees with the last bucket.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = to_f64(self.0.sum.load(Ordering::Relaxed)) * scale;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn bounds_are_inclusive_and_larger_values_go_to_the_last_bucket() {
        let histogram = Histogram::new(&RETRIES);
        for value in [0, 1, 1, 20, 21] {
            histogram.record(value);
        }
        let mut registry = Registry::default();
        registry.register("retries", "Retries", histogram);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "retries_sum 43.0",
            "retries_count 5",
            "retries_bucket{le=\"0.0\"} 1",
            "retries_bucket{le=\"1.0\"} 3",
            "retries_bucket{le=\"15.0\"} 3",
            "retries_bucket{le=\"20.0\"} 4",
            "retries_bucket{le=\"+Inf\"} 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
