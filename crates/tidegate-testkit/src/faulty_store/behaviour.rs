//! When a faulty store answers, and what it answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Charge, Limit, Operation, Store, StoreError, StoreResponses};

/// When a submission is executed and answered. Durations are in tokio's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Within the call, like a store in the same process.
    AtOnce,
    /// In the first poll.
    WhenPolled,
    /// In the second poll; the first one returns pending.
    Deferred,
    /// Executed in the first poll, answered in the second.
    AnsweredLate,
    /// When the test opens the gate: [`FaultyStore::open`](super::FaultyStore::open).
    Gated,
    /// After this duration.
    After(Duration),
    /// Executed after half of this duration, answered after the other half.
    RoundTrip(Duration),
    /// One operation after the other, each after this duration.
    Each(Duration),
    /// Never: the submission hangs, and nothing is executed.
    Never,
    /// Executed in the first poll, and never answered.
    Unanswered,
}

/// An operation for which a faulty store may return an error.
#[derive(Clone, Copy, Debug)]
pub struct OperationContext<'a> {
    /// The operation.
    pub operation: &'a Operation<'a>,
    /// Its index in the submission.
    pub index: usize,
    /// Number of operations that were executed or failed before it.
    pub number: usize,
}

type TimingRule = dyn Fn(&[Operation<'_>]) -> Timing + Send + Sync;
type ErrorRule = dyn Fn(OperationContext<'_>) -> Option<StoreError> + Send + Sync;
type ProbeRule = dyn Fn(usize) -> Result<(), StoreError> + Send + Sync;

/// Timing and errors of a faulty store. By default it answers like the wrapped store, and probes
/// succeed.
#[derive(Clone)]
pub struct Behaviour {
    timing: Arc<TimingRule>,
    error: Option<Arc<ErrorRule>>,
    probe: Option<Arc<ProbeRule>>,
    max_answers: usize,
    limit: Option<Limit>,
}

impl From<Timing> for Behaviour {
    fn from(timing: Timing) -> Self {
        Self::timed_by(move |_| timing)
    }
}

impl Behaviour {
    /// Determines the timing of each submission by its operations, and of a probe by an empty list.
    #[must_use]
    pub fn timed_by(timing: impl Fn(&[Operation<'_>]) -> Timing + Send + Sync + 'static) -> Self {
        Self {
            timing: Arc::new(timing),
            error: None,
            probe: None,
            max_answers: usize::MAX,
            limit: None,
        }
    }

    /// Makes all operations and probes fail.
    #[must_use]
    pub fn failing(self, error: impl Fn() -> StoreError + Clone + Send + Sync + 'static) -> Self {
        let probe_error = error.clone();
        self.failing_if(move |_| Some(error())).probing(move |_| Err(probe_error()))
    }

    /// Makes all operations and probes fail as if the server were down.
    #[must_use]
    pub fn unavailable(self) -> Self {
        self.failing(|| StoreError::Unavailable("connection refused".into()))
    }

    /// Makes the operations fail for which `error` returns an error; the others are executed.
    #[must_use]
    pub fn failing_if(
        mut self,
        error: impl Fn(OperationContext<'_>) -> Option<StoreError> + Send + Sync + 'static,
    ) -> Self {
        self.error = Some(Arc::new(error));
        self
    }

    /// Sets the result of a probe by the number of earlier probes. It is called within
    /// [`Store::probe`], so it may panic there.
    #[must_use]
    pub fn probing(
        mut self,
        answer: impl Fn(usize) -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> Self {
        self.probe = Some(Arc::new(answer));
        self
    }

    /// Executes and answers only the first operations of a submission.
    #[must_use]
    pub const fn with_max_answers(mut self, operations: usize) -> Self {
        self.max_answers = operations;
        self
    }

    /// Decides takes by this limit, whichever limit they name, as if another node had changed it
    /// and the caller did not know yet.
    #[must_use]
    pub fn overriding_limit(mut self, limit: Limit) -> Self {
        self.limit = Some(limit);
        self
    }

    pub(super) fn timing(&self, operations: &[Operation<'_>]) -> Timing {
        (self.timing)(operations)
    }

    /// The operations of a submission that are answered.
    pub(super) fn answered<'o, 'a>(&self, operations: &'o [Operation<'a>]) -> &'o [Operation<'a>] {
        &operations[..operations.len().min(self.max_answers)]
    }

    /// Whether every operation goes to the wrapped store unchanged.
    pub(super) const fn is_exact(&self) -> bool {
        self.error.is_none() && self.limit.is_none()
    }

    pub(super) fn error(&self, context: OperationContext<'_>) -> Option<StoreError> {
        self.error.as_ref().and_then(|error| error(context))
    }

    pub(super) fn probe(&self, number: usize) -> Result<(), StoreError> {
        self.probe.as_ref().map_or(Ok(()), |probe| probe(number))
    }

    pub(super) async fn decide(
        &self,
        store: &impl Store,
        operation: &Operation<'_>,
        answers: &mut StoreResponses,
    ) {
        let (Some(limit), Operation::Take(charges)) = (&self.limit, operation) else {
            return store.submit(&[*operation], answers).await;
        };
        let charges_by_limit = charges.iter().map(|charge| {
            let mut charge = *charge;
            charge.target.limit = limit;
            charge
        });
        let charges: Vec<Charge<'_>> = charges_by_limit.collect();
        store.submit(&[Operation::Take(&charges)], answers).await;
    }
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behaviour")
            .field("fails", &self.error.is_some())
            .field("max_answers", &self.max_answers)
            .finish_non_exhaustive()
    }
}
