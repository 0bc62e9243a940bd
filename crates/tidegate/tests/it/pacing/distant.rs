//! A store that takes its time to answer, fails when told, and counts what it is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::pacer::Pacer;
use tidegate::{
    Answers, Engine, Limiter, MemoryStore, Operation, Policy, Store, StoreError, StoreHandle,
    Submission,
};

/// How long a question and its answer take.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(4);

/// A store at the other end of a wire: it decides exactly, but not at once.
#[derive(Debug)]
pub(super) struct Distant {
    pub(super) store: MemoryStore,
    pub(super) asked: AtomicUsize,
    /// Submissions that renew something, and what they renew.
    pub(super) rounds: AtomicUsize,
    pub(super) renewals: AtomicUsize,
    pub(super) down: AtomicBool,
    /// Every so manieth question fails; zero: none.
    pub(super) fails: AtomicUsize,
    /// Half of the time that a question and its answer take, in microseconds.
    pub(super) half_us: AtomicU64,
}

impl Distant {
    pub(super) fn on(store: MemoryStore) -> Arc<Self> {
        let half_us = u64::try_from(ROUND_TRIP.as_micros() / 2).unwrap().into();
        let (asked, rounds, renewals, fails) = (0.into(), 0.into(), 0.into(), 0.into());
        Arc::new(Self { store, asked, rounds, renewals, down: false.into(), fails, half_us })
    }

    /// How many submissions have renewed something so far.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.load(Ordering::SeqCst)
    }

    /// How many grants have been renewed so far, each as often as it was.
    pub(super) fn renewals(&self) -> usize {
        self.renewals.load(Ordering::SeqCst)
    }

    pub(super) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }
}

impl Store for Distant {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut Answers,
    ) -> Submission<'a> {
        Submission::Pending(Box::pin(async move {
            let number = self.asked.fetch_add(operations.len(), Ordering::SeqCst);
            let is_renewal =
                |operation: &&Operation<'_>| matches!(operation, Operation::Renew { .. });
            let renewals = operations.iter().filter(is_renewal).count();
            self.renewals.fetch_add(renewals, Ordering::SeqCst);
            self.rounds.fetch_add(renewals.min(1), Ordering::SeqCst);
            let half = Duration::from_micros(self.half_us.load(Ordering::SeqCst));
            tokio::time::sleep(half).await;
            let fails = self.fails.load(Ordering::SeqCst);
            let reserve = matches!(operations, [Operation::Reserve { .. }]);
            let unlucky = fails > 0 && reserve && number % fails == 0;
            if unlucky || self.down.load(Ordering::SeqCst) {
                answers.extend(operations.iter().map(|_| Err(StoreError::TimedOut)));
            } else {
                self.store.submit(operations, answers).await;
            }
            tokio::time::sleep(half).await;
        }))
    }
}

/// A distant store on tokio's clock, a pacer on it of at most four at a time, and a limiter.
pub(super) fn distant(policy: Policy) -> (Arc<Distant>, Pacer, Limiter) {
    let distant = Distant::on(MemoryStore::builder().clock(TokioClock::new()).build().unwrap());
    let engine = Engine::on(StoreHandle::shared(distant.clone()));
    let pacer = Pacer::builder(&engine).concurrency(4).build();
    (distant, pacer, engine.limiter("calls", policy).unwrap())
}
