//! What is counted, for whatever exports it.
//!
//! No number is ever a label, and no client either: hints and sizes are observations of a
//! histogram, so the number of series does not grow with the traffic.

/// A number that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counter {
    /// Messages with too many bytes.
    PayloadExceeded,
    /// Messages over a rate limit.
    RateExceeded,
    /// Limited messages of which the hook was not told, because it was too far behind.
    HookDropped,
    /// Calls of the hook that panicked.
    HookPanicked,
}

impl Counter {
    /// The name of the metric.
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
        }
    }
}

/// A distribution of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Histogram {
    /// Bytes of the messages that had too many.
    PayloadBytes,
    /// Hints given to clients over a rate limit, in milliseconds.
    RetryAfterMs,
}

impl Histogram {
    /// The name of the metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PayloadBytes => "limits.payload_bytes",
            Self::RetryAfterMs => "limits.retry_after_ms",
        }
    }
}

/// Receives what a gate counts: a few lines for Prometheus, OpenTelemetry or any other exporter.
///
/// It is called on the way of the message, so it adds to a number and returns. What takes longer
/// belongs into the [hook](crate::GateBuilder::on_limit_exceeded). If it panics, the message goes on
/// and the panic is [counted](crate::HookStats::observer_panicked).
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
    /// Adds one to a counter.
    fn count(&self, counter: Counter);

    /// Adds a value to a distribution.
    fn record(&self, histogram: Histogram, value: u64);
}
