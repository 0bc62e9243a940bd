//! Shorthand for operations on a store under test. An error or an answer of the wrong kind fails
//! the case immediately.

use std::time::Duration;

use tidegate_core::{
    Charge, Correction, Decision, Grant, Key, Limit, Operation, Policy, Receipt, Settlement,
    StoreError, StoreResponse, Target,
};

use super::transcript::{self, Summary};
use crate::scenario::step::ORIGIN_NS;
use crate::subject::{Subject, execute};

const MILLI: u64 = 1_000_000;

/// One second.
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The store under test and its clock.
#[derive(Clone, Copy)]
pub(super) struct TestStore<'s>(pub(super) &'s dyn Subject);

impl TestStore<'_> {
    /// Sets the clock, in milliseconds after the start.
    pub(super) async fn at(self, millis: u64) {
        transcript::set_time(millis);
        self.0.set_time(ORIGIN_NS + millis * MILLI).await;
    }

    pub(super) async fn execute(self, operation: Operation<'_>) -> StoreResponse {
        match self.exchange(operation).await {
            (_, Ok(answer)) => answer,
            (operation, answer) => {
                panic!("{operation} returned {}, expected an answer", Summary(&answer))
            }
        }
    }

    /// The error of an operation that must be refused.
    pub(super) async fn error(self, operation: Operation<'_>) -> StoreError {
        match self.exchange(operation).await {
            (_, Err(error)) => error,
            (operation, answer) => {
                panic!("{operation} returned {}, expected an error", Summary(&answer))
            }
        }
    }

    /// Executes an operation and records it for the failure report.
    async fn exchange(
        self,
        operation: Operation<'_>,
    ) -> (String, Result<StoreResponse, StoreError>) {
        let summary = Summary(&operation).to_string();
        let answer = execute(self.0.store(), operation).await;
        transcript::record(&summary, &answer);
        (summary, answer)
    }

    async fn decision(self, operation: Operation<'_>) -> Decision {
        match self.execute(operation).await {
            StoreResponse::Decision(decision) => decision,
            other => wrong_kind(other, "a decision"),
        }
    }

    pub(super) async fn take(self, charges: &[Charge<'_>]) -> Decision {
        self.decision(Operation::Take(charges)).await
    }

    pub(super) async fn peek(self, charges: &[Charge<'_>]) -> Decision {
        self.decision(Operation::Peek(charges)).await
    }

    pub(super) async fn reserve(self, charges: &[Charge<'_>], horizon: Duration) -> Decision {
        self.decision(Operation::Reserve { charges, horizon }).await
    }

    /// Takes charges that must be granted.
    pub(super) async fn spend(self, charges: &[Charge<'_>]) -> Grant {
        match self.take(charges).await {
            Decision::Allowed(grant) => grant,
            other => panic!("expected allowed, got: {}", Summary(&other)),
        }
    }

    /// Takes `cost` tokens from one bucket.
    pub(super) async fn take_from(self, limit: &Limit, key: &str, cost: u64) -> Decision {
        self.take(&[Charge::new(limit, key, cost)]).await
    }

    /// Number of whole tokens that remain for a key.
    pub(super) async fn remaining<'k>(self, limit: &Limit, key: impl Into<Key<'k>>) -> u64 {
        let key: Key<'_> = key.into();
        self.peek(&[Charge { target: Target { limit, key, windows: None }, cost: 0 }])
            .await
            .remaining()
    }

    pub(super) async fn settle(
        self,
        corrections: &[Correction<'_>],
        receipt: Option<&Receipt>,
    ) -> Settlement {
        match self.execute(Operation::Settle { corrections, receipt }).await {
            StoreResponse::Settled(settlement) => settlement,
            other => wrong_kind(other, "a settlement"),
        }
    }

    pub(super) async fn hold(self, limit: &Limit, key: &str, span: Duration) -> Duration {
        let target = Target::new(limit, key);
        match self.execute(Operation::Hold { target, span }).await {
            StoreResponse::HeldFor(span) => span,
            other => wrong_kind(other, "the length of a hold"),
        }
    }

    pub(super) async fn reset(self, target: Target<'_>) -> bool {
        match self.execute(Operation::Reset { target }).await {
            StoreResponse::Reset(forgot) => forgot,
            other => wrong_kind(other, "the answer to a reset"),
        }
    }

    /// Releases the slots that a receipt holds in one bucket.
    pub(super) async fn release(self, limit: &Limit, key: &str, receipt: &Receipt) -> u64 {
        let targets = [Target::new(limit, key)];
        self.slots(Operation::Release { targets: &targets, receipt }).await
    }

    pub(super) async fn renew(self, limit: &Limit, key: &str, receipt: &Receipt) -> u64 {
        let targets = [Target::new(limit, key)];
        self.slots(Operation::Renew { targets: &targets, receipt }).await
    }

    async fn slots(self, operation: Operation<'_>) -> u64 {
        match self.execute(operation).await {
            StoreResponse::Slots(slots) => slots,
            other => wrong_kind(other, "a number of slots"),
        }
    }
}

/// Fails the case: the answer belongs to another operation.
fn wrong_kind(answer: StoreResponse, expected: &str) -> ! {
    panic!("{} is not {expected}", Summary(&Ok(answer)));
}

/// A named token bucket.
pub(super) fn bucket(name: &str, per_second: u64, capacity: u64) -> Limit {
    let policy = Policy::per_second(per_second).capacity(capacity).build();
    named(name, policy.expect("a valid policy"))
}

/// A named limit.
pub(super) fn named(name: &str, policy: Policy) -> Limit {
    Limit::named(name, policy).expect("a valid name")
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
