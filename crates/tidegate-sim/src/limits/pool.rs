//! A pool: calls that share limits. Decides which call is admitted or queued, and what it is
//! charged.
//!
//! How a rejection looks is up to the dialect.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::calendar::Now;
use crate::limits::Limits;
use crate::limits::charging::{CallCharge, FailedCalls};
use crate::limits::quota::{Blocked, LimitSnapshot, Quotas};

/// Limits and their current use.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) id: usize,
    pub(crate) limits: Limits,
    quotas: Mutex<Quotas>,
    slots: Option<Arc<Semaphore>>,
    waiting: AtomicU64,
    in_flight: AtomicU64,
}

/// The concurrency slot of an admitted call.
#[derive(Debug)]
pub(crate) enum SlotGrant {
    /// The call may start. There is no permit if concurrency is not limited.
    Begin(Option<OwnedSemaphorePermit>),
    /// The call is queued.
    Queue(QueueEntry),
}

/// An admitted call.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) slot: SlotGrant,
    /// The limits right after the call was charged.
    pub(crate) snapshot: LimitSnapshot,
}

/// Why a call was not admitted.
#[derive(Debug)]
pub(crate) enum AdmitError {
    Limited(Blocked, CallCharge),
    Busy { limit: u64, counted: CallCharge },
}

impl Pool {
    pub(crate) fn new(id: usize, limits: Limits) -> Self {
        let slots = limits.concurrency.map(|places| {
            let places = usize::try_from(places).unwrap_or(usize::MAX);
            Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)))
        });
        Self {
            id,
            quotas: Mutex::new(Quotas::new(&limits)),
            limits,
            slots,
            waiting: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
        }
    }

    /// Admits and charges a call, or does neither.
    pub(crate) fn admit(
        self: &Arc<Self>,
        now: Now,
        charge: CallCharge,
        failed: FailedCalls,
    ) -> Result<Admitted, AdmitError> {
        let mut quotas = self.lock();
        let Some(slot) = self.try_slot() else {
            let counted = quotas.count_refused(now, failed);
            return Err(AdmitError::Busy { limit: self.limits.concurrency.unwrap_or(0), counted });
        };
        quotas
            .admit(now, charge, failed)
            .map_err(|(blocked, counted)| AdmitError::Limited(blocked, counted))?;
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        Ok(Admitted { slot, snapshot: quotas.snapshot(now) })
    }

    /// Counts a call that was rejected for another reason, if rejected calls count.
    pub(crate) fn count_refused(&self, now: Now, failed: FailedCalls) -> CallCharge {
        self.lock().count_refused(now, failed)
    }

    /// Records the end of a call and corrects its charge.
    pub(crate) fn finish(&self, now: Now, taken: Now, from: CallCharge, to: CallCharge) {
        self.lock().correct(now, taken, from, to);
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns the current limits.
    pub(crate) fn snapshot(&self, now: Now) -> LimitSnapshot {
        self.lock().snapshot(now)
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::SeqCst)
    }

    fn try_slot(self: &Arc<Self>) -> Option<SlotGrant> {
        let Some(slots) = &self.slots else { return Some(SlotGrant::Begin(None)) };
        if let Ok(permit) = Arc::clone(slots).try_acquire_owned() {
            return Some(SlotGrant::Begin(Some(permit)));
        }
        let free = self.waiting.load(Ordering::SeqCst) < self.limits.queue.unwrap_or(0);
        free.then(|| {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let acquire = Arc::clone(slots).acquire_owned();
            let granted = Box::pin(async move { acquire.await.ok() });
            SlotGrant::Queue(QueueEntry { granted, pool: Arc::clone(self) })
        })
    }

    fn lock(&self) -> MutexGuard<'_, Quotas> {
        self.quotas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry in the queue. Dropping it leaves the queue.
pub(crate) struct QueueEntry {
    granted: Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>,
    pool: Arc<Pool>,
}

impl QueueEntry {
    /// Waits for a permit. Cancel safe: the entry keeps its position.
    pub(crate) async fn granted(&mut self) -> Option<OwnedSemaphorePermit> {
        self.granted.as_mut().await
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        self.pool.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for QueueEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueEntry").field("pool", &self.pool.id).finish_non_exhaustive()
    }
}
