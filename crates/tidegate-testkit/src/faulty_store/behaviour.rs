//! What a faulty store does when it is asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Answers, Charge, Limit, Operation, Store, StoreError};

/// When a submission is carried out and answered. Spans are of tokio's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Within the call, as a store in the same process does.
    AtOnce,
    /// In the first poll.
    WhenPolled,
    /// In the second poll; the first one does nothing.
    Deferred,
    /// Carried out in the first poll, answered in the second.
    AnsweredLate,
    /// When the test opens the gate: [`FaultyStore::open`](super::FaultyStore::open).
    Gated,
    /// After this time.
    After(Duration),
    /// Carried out after half of this time, answered after the other half.
    RoundTrip(Duration),
    /// One operation after the other, each after this time.
    Each(Duration),
    /// Never: the submission hangs, and nothing is carried out.
    Never,
    /// Carried out in the first poll, and never answered.
    Unanswered,
}

/// An operation that a faulty store may let fail.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The operation.
    pub operation: &'a Operation<'a>,
    /// Its place in its submission.
    pub index: usize,
    /// How many operations were carried out or failed before it.
    pub number: usize,
}

type TimingRule = dyn Fn(&[Operation<'_>]) -> Timing + Send + Sync;
type ErrorRule = dyn Fn(Asked<'_>) -> Option<StoreError> + Send + Sync;
type ProbeRule = dyn Fn(usize) -> Result<(), StoreError> + Send + Sync;

/// What a faulty store does when it is asked: by default it decides as the store behind it, and
/// answers probes.
#[derive(Clone)]
pub struct Behaviour {
    timing: Arc<TimingRule>,
    error: Option<Arc<ErrorRule>>,
    probe: Option<Arc<ProbeRule>>,
    most_answers: usize,
    limit: Option<Limit>,
}

impl From<Timing> for Behaviour {
    fn from(timing: Timing) -> Self {
        Self::timed_by(move |_| timing)
    }
}

impl Behaviour {
    /// The timing of each submission by its operations; that of a probe by none.
    #[must_use]
    pub fn timed_by(timing: impl Fn(&[Operation<'_>]) -> Timing + Send + Sync + 'static) -> Self {
        Self {
            timing: Arc::new(timing),
            error: None,
            probe: None,
            most_answers: usize::MAX,
            limit: None,
        }
    }

    /// All operations and probes fail.
    #[must_use]
    pub fn failing(self, error: impl Fn() -> StoreError + Clone + Send + Sync + 'static) -> Self {
        let of_probe = error.clone();
        self.failing_if(move |_| Some(error())).probing(move |_| Err(of_probe()))
    }

    /// All operations and probes fail as those of a server that is down.
    #[must_use]
    pub fn unavailable(self) -> Self {
        self.failing(|| StoreError::Unavailable("connection refused".into()))
    }

    /// The operations fail for which there is an error; the others are carried out.
    #[must_use]
    pub fn failing_if(
        mut self,
        error: impl Fn(Asked<'_>) -> Option<StoreError> + Send + Sync + 'static,
    ) -> Self {
        self.error = Some(Arc::new(error));
        self
    }

    /// What a probe tells, by how many there were before it. It is called within
    /// [`Store::probe`], so it may panic there.
    #[must_use]
    pub fn probing(
        mut self,
        answer: impl Fn(usize) -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> Self {
        self.probe = Some(Arc::new(answer));
        self
    }

    /// Only the first operations of a submission are carried out and answered.
    #[must_use]
    pub const fn answering_at_most(mut self, operations: usize) -> Self {
        self.most_answers = operations;
        self
    }

    /// Takes are decided by this limit, whichever they name: another node has changed it, and the
    /// caller has not heard of that.
    #[must_use]
    pub fn taking_by(mut self, limit: Limit) -> Self {
        self.limit = Some(limit);
        self
    }

    pub(super) fn timing(&self, operations: &[Operation<'_>]) -> Timing {
        (self.timing)(operations)
    }

    /// The part of a submission that is answered.
    pub(super) fn answered<'o, 'a>(&self, operations: &'o [Operation<'a>]) -> &'o [Operation<'a>] {
        &operations[..operations.len().min(self.most_answers)]
    }

    /// Whether the store behind it decides everything, as it is asked.
    pub(super) const fn is_exact(&self) -> bool {
        self.error.is_none() && self.limit.is_none()
    }

    pub(super) fn error(&self, asked: Asked<'_>) -> Option<StoreError> {
        self.error.as_ref().and_then(|error| error(asked))
    }

    pub(super) fn probe(&self, number: usize) -> Result<(), StoreError> {
        self.probe.as_ref().map_or(Ok(()), |probe| probe(number))
    }

    pub(super) async fn decide(
        &self,
        store: &impl Store,
        operation: &Operation<'_>,
        answers: &mut Answers,
    ) {
        let (Some(limit), Operation::Take(charges)) = (&self.limit, operation) else {
            return store.submit(&[*operation], answers).await;
        };
        let by_limit = charges.iter().map(|charge| {
            let mut charge = *charge;
            charge.target.limit = limit;
            charge
        });
        let charges: Vec<Charge<'_>> = by_limit.collect();
        store.submit(&[Operation::Take(&charges)], answers).await;
    }
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behaviour")
            .field("fails", &self.error.is_some())
            .field("most_answers", &self.most_answers)
            .finish_non_exhaustive()
    }
}
