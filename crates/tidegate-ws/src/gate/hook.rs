//! The application's hook for exceeded limits, off the message path.
//!
//! It runs on a thread of the gate, behind a bounded queue. So it may block without delaying any
//! message; calls that do not fit into the queue are dropped, counted and logged. The thread ends
//! when the gate and all its connections are dropped and the queue is empty.
//!
//! Neither the hook nor an observer can fail a message or end the thread: their panics are counted.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tidegate::StoreError;
use tidegate::clock::wall_now;
use tidegate_http::ThrottledLog;

use crate::exceeded::{LimitExceeded, LimitKind};
use crate::gate::observe::{Counter, Histogram, Observer};

/// Maximum number of queued hook calls.
pub const HOOK_QUEUE_CAPACITY: usize = 1_024;

/// Minimum time between two lines about dropped calls, or about the store.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) type HookFn = Box<dyn FnMut(LimitExceeded) + Send>;

/// Statistics of the hook and the observers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookStats {
    /// Hook calls dropped because [`HOOK_QUEUE_CAPACITY`] calls were queued.
    pub dropped: u64,
    /// Hook calls that panicked.
    pub panicked: u64,
    /// Calls of an [`Observer`] that panicked.
    pub observer_panicked: u64,
}

/// Reports exceeded limits to the log, the observers and the hook.
pub(crate) struct Reporter {
    queue: Option<SyncSender<LimitExceeded>>,
    counters: Arc<HookCounters>,
    log_client_ids: bool,
    drop_log: ThrottledLog,
    store_log: ThrottledLog,
}

struct HookCounters {
    dropped: AtomicU64,
    panicked: AtomicU64,
    observer_panicked: AtomicU64,
    observers: Vec<Arc<dyn Observer>>,
}

impl Reporter {
    pub(crate) fn new(
        hook: Option<HookFn>,
        observers: Vec<Arc<dyn Observer>>,
        log_client_ids: bool,
    ) -> io::Result<Self> {
        let (dropped, panicked, observer_panicked) = Default::default();
        let counters = Arc::new(HookCounters { dropped, panicked, observer_panicked, observers });
        let queue = match hook {
            Some(hook) => Some(start(hook, counters.clone())?),
            None => None,
        };
        let log = || ThrottledLog::every(LOG_INTERVAL);
        Ok(Self { queue, counters, log_client_ids, drop_log: log(), store_log: log() })
    }

    /// Reports one exceeded limit, once to each.
    pub(crate) fn report(&self, exceeded: &LimitExceeded) {
        let LimitExceeded { kind, observed, limit, retry_after_ms, .. } = *exceeded;
        let is_logged = self.log_client_ids || exceeded.client_id.is_generated();
        let client_id = is_logged.then(|| exceeded.client_id.as_str());
        match kind {
            LimitKind::Payload => {
                tracing::warn!(client_id, observed, limit, "payload_exceeded");
                self.counters.count(Counter::PayloadExceeded);
                self.counters.record(Histogram::PayloadBytes, observed);
            }
            LimitKind::Rate => {
                tracing::warn!(client_id, observed, limit, retry_after_ms, "rate_limited");
                self.counters.count(Counter::RateExceeded);
                if let Some(wait) = retry_after_ms {
                    self.counters.record(Histogram::RetryAfterMs, wait);
                }
            }
        }
        if let Some(queue) = &self.queue
            && queue.try_send(exceeded.clone()).is_err()
        {
            let dropped = self.counters.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            self.counters.count(Counter::HookDropped);
            if self.drop_log.due(wall_now()).is_some() {
                tracing::warn!(
                    dropped,
                    queued = HOOK_QUEUE_CAPACITY,
                    "limit hook is behind; calls dropped"
                );
            }
        }
    }

    /// Logs that a message could not be decided.
    pub(crate) fn not_decided(&self, error: &StoreError) {
        if let Some(suppressed) = self.store_log.due(wall_now()) {
            let error: &dyn std::error::Error = error;
            tracing::error!(error, suppressed, "message not decided");
        }
    }

    /// Counts buckets that were full when a message was charged to them.
    pub(crate) fn count_new_buckets(&self, buckets: usize) {
        (0..buckets).for_each(|_| self.counters.count(Counter::NewBuckets));
    }

    pub(crate) fn stats(&self) -> HookStats {
        HookStats {
            dropped: self.counters.dropped.load(Ordering::Relaxed),
            panicked: self.counters.panicked.load(Ordering::Relaxed),
            observer_panicked: self.counters.observer_panicked.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl HookCounters {
    fn count(&self, counter: Counter) {
        self.observe(|observer| observer.count(counter));
    }

    fn record(&self, histogram: Histogram, value: u64) {
        self.observe(|observer| observer.record(histogram, value));
    }

    /// Calls each observer. Its own state after a panic is its own concern.
    fn observe(&self, call: impl Fn(&dyn Observer)) {
        for observer in &self.observers {
            if catch_unwind(AssertUnwindSafe(|| call(&**observer))).is_err() {
                self.observer_panicked.fetch_add(1, Ordering::Relaxed);
                tracing::error!("observer panicked; continuing");
            }
        }
    }
}

fn start(hook: HookFn, counters: Arc<HookCounters>) -> io::Result<SyncSender<LimitExceeded>> {
    let (queue, exceeded) = sync_channel(HOOK_QUEUE_CAPACITY);
    thread::Builder::new()
        .name("tidegate-ws-hook".into())
        .spawn(move || run(hook, &exceeded, &counters))?;
    Ok(queue)
}

fn run(mut hook: HookFn, exceeded: &Receiver<LimitExceeded>, counters: &HookCounters) {
    for exceeded in exceeded {
        // The state of the hook after a panic is its own concern; it is called again.
        if catch_unwind(AssertUnwindSafe(|| hook(exceeded))).is_err() {
            counters.panicked.fetch_add(1, Ordering::Relaxed);
            tracing::error!("limit hook panicked; continuing");
            counters.count(Counter::HookPanicked);
        }
    }
}
