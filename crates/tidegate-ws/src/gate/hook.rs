//! The application's hook for exceeded limits, off the message path.
//!
//! It runs on a thread of the gate, behind a bounded queue. So it may block without delaying any
//! message; calls that do not fit into the queue are dropped, counted and logged. The thread ends
//! when the gate and all its connections are dropped and the queue is empty. It does not keep the
//! process alive: an application that exits waits for it with `Gate::drain_hook`.
//!
//! Neither the hook nor an observer can fail a message or end the thread: their panics are counted.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tidegate::StoreError;
use tidegate::clock::wall_now;
use tidegate_http::ThrottledLog;
use tokio::sync::watch;

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
    /// Hook calls that are queued or running. If the process ends now, they are lost.
    pub pending: u64,
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
    /// Number of queued calls. Locked while one is queued, so that its number is its place.
    queued: Mutex<u64>,
    /// Number of queued calls that have ended.
    ended: watch::Sender<u64>,
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
        let counters = Arc::new(HookCounters {
            queued: Mutex::new(0),
            ended: watch::Sender::new(0),
            dropped: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            observer_panicked: AtomicU64::new(0),
            observers,
        });
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
        let Some(queue) = &self.queue else { return };
        if !self.counters.enqueue(queue, exceeded) {
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

    /// Waits until the hook calls that are queued now have ended.
    pub(crate) async fn drain_hook(&self) {
        let queued = self.counters.queued();
        // The sender is in `self`, so it is not dropped meanwhile.
        let _ = self.counters.ended.subscribe().wait_for(|ended| *ended >= queued).await;
    }

    pub(crate) fn stats(&self) -> HookStats {
        HookStats {
            dropped: self.counters.dropped.load(Ordering::Relaxed),
            pending: self.counters.queued().saturating_sub(*self.counters.ended.borrow()),
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
    /// Queues a call, and returns whether there was room.
    fn enqueue(&self, queue: &SyncSender<LimitExceeded>, exceeded: &LimitExceeded) -> bool {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        let is_queued = queue.try_send(exceeded.clone()).is_ok();
        *queued += u64::from(is_queued);
        is_queued
    }

    fn queued(&self) -> u64 {
        *self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
        counters.ended.send_modify(|ended| *ended += 1);
    }
}
