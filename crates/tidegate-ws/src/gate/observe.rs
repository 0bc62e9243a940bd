//! Metrics of a gate, for any exporter.
//!
//! Neither numbers nor clients become labels: hints and sizes are values of a histogram, so the
//! number of series does not grow with traffic.

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counter {
    /// Messages that were too large.
    PayloadExceeded,
    /// Messages over a rate limit.
    RateExceeded,
    /// Hook calls dropped because the hook was too far behind.
    HookDropped,
    /// Hook calls that panicked.
    HookPanicked,
    /// Buckets that were full when an accepted message was charged to them: of a new key, or of one
    /// whose bucket has refilled since its last message, which no store can tell apart. Slots and
    /// the ceiling of a connection do not count.
    ///
    /// A slow client counts with every message. But a key counts at most once in the time in which
    /// its bucket refills the cost of a message. So under a limit of `r` tokens per second and key,
    /// and costs of 1, the rate of this counter is at most `r` times the number of keys in use, and
    /// one more for each new key. If it is higher, a key function returns a new key for every
    /// message, and its limit limits nothing.
    NewBuckets,
}

impl Counter {
    /// Returns the name of the metric.
    ///
    /// ```
    /// assert_eq!(tidegate_ws::Counter::RateExceeded.name(), "limits.rate_exceeded");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PayloadExceeded => "limits.payload_exceeded",
            Self::RateExceeded => "limits.rate_exceeded",
            Self::HookDropped => "limits.hook_dropped",
            Self::HookPanicked => "limits.hook_panicked",
            Self::NewBuckets => "limits.new_buckets",
        }
    }
}

/// A histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Histogram {
    /// Sizes of messages that were too large, in bytes.
    PayloadBytes,
    /// Retry hints sent to clients over a rate limit, in milliseconds.
    RetryAfterMs,
}

impl Histogram {
    /// Returns the name of the metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PayloadBytes => "limits.payload_bytes",
            Self::RetryAfterMs => "limits.retry_after_ms",
        }
    }
}

/// Receives the metrics of a gate, for Prometheus, OpenTelemetry or any other exporter.
///
/// It is called on the message path, so it must return quickly. Slow work belongs in the
/// [hook](crate::GateBuilder::on_limit_exceeded). If it panics, the message proceeds and the panic
/// is [counted](crate::HookStats::observer_panicked).
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tidegate_ws::{Counter, Gate, Histogram, Observer};
///
/// #[derive(Default)]
/// struct Limited(AtomicU64);
///
/// impl Observer for Limited {
///     fn count(&self, counter: Counter) {
///         if counter == Counter::RateExceeded {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
///     fn record(&self, _: Histogram, _: u64) {}
/// }
///
/// let gate = Gate::<()>::for_types(["PING"]).observer(Arc::new(Limited::default())).build()?;
/// # Ok::<(), tidegate_ws::BuildError>(())
/// ```
pub trait Observer: Send + Sync {
    /// Increments a counter.
    fn count(&self, counter: Counter);

    /// Records a value in a histogram.
    fn record(&self, histogram: Histogram, value: u64);
}
