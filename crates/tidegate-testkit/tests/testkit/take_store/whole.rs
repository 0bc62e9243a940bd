//! Broken stores that implement the whole contract.

use tidegate_core::{
    Decision, Operation, Store, StoreError, StoreResponse, StoreResponses, Submission, TakeOnly,
};
use tidegate_testkit::subject::{BoxFuture, Resolution, Subject, execute};

use super::buckets::{Buckets, Defect, TestClock};
use crate::plain_store::PlainStore;

/// Which part of a whole store is broken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Broken {
    /// Takes and peeks of one bucket.
    Buckets(Defect),
    /// A list is taken one charge after the other, so a denial has spent what came before it.
    Lists,
}

/// A correct store, except for the broken part.
#[derive(Debug)]
pub(super) struct WholeStore {
    broken: Broken,
    buckets: TakeOnly<Buckets>,
    clock: TestClock,
    plain: PlainStore,
}

impl WholeStore {
    pub(super) fn new(broken: Broken) -> Self {
        let defect = match broken {
            Broken::Buckets(defect) => defect,
            Broken::Lists => Defect::None,
        };
        let (buckets, clock) = Buckets::on_manual_clock(defect);
        Self { broken, buckets: TakeOnly(buckets), clock, plain: PlainStore::new() }
    }

    async fn answer(&self, operation: Operation<'_>) -> Result<StoreResponse, StoreError> {
        match (self.broken, operation) {
            (Broken::Buckets(_), Operation::Take(_) | Operation::Peek(_)) => {
                match execute(&self.buckets, operation).await {
                    // Lists and other policies.
                    Err(StoreError::Unsupported(_)) => execute(&self.plain, operation).await,
                    answer => answer,
                }
            }
            (Broken::Lists, Operation::Take(charges)) => {
                let answer = execute(&self.plain, Operation::Peek(charges)).await;
                for charge in charges {
                    let taken =
                        execute(&self.plain, Operation::Take(std::slice::from_ref(charge))).await?;
                    if matches!(taken, StoreResponse::Decision(Decision::Denied(_))) {
                        break;
                    }
                }
                answer
            }
            _ => execute(&self.plain, operation).await,
        }
    }
}

impl Store for WholeStore {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut StoreResponses,
    ) -> Submission<'a> {
        Submission::Pending(Box::pin(async move {
            for operation in operations {
                answers.push(self.answer(*operation).await);
            }
        }))
    }
}

impl Subject for WholeStore {
    fn store(&self) -> &dyn Store {
        self
    }

    fn resolution(&self) -> Resolution {
        Resolution::Ns
    }

    fn set_time(&self, nanos: u64) -> BoxFuture<'_, ()> {
        self.clock.set(nanos);
        self.plain.set_time(nanos)
    }
}
