//! A Worker with a manual clock, and a store on it.

use std::time::Duration;

use tidegate_core::{Charge, Decision, Limit, Operation, Policy, Store, StoreError, StoreResponse};
use tidegate_durable::DurableStore;
use tidegate_testkit::launch::Workerd;
use tidegate_testkit::subject::{BoxFuture, Resolution, Subject, execute};

/// The secret of the Worker.
pub(crate) const SECRET: &str = "a secret for tests";

/// Returns a store on the Worker.
pub(crate) fn store(workerd: &Workerd, shards: u64) -> DurableStore {
    let address = format!("durable+http://{}", workerd.address());
    let builder = DurableStore::builder(&address).secret(SECRET).shards(shards);
    builder.timeout(Duration::from_secs(30)).build().unwrap()
}

/// Returns a limit of 10 at once and 1 per second.
pub(crate) fn limit(name: &str) -> Limit {
    Limit::named(name, Policy::per_second(1).capacity(10).build().unwrap()).unwrap()
}

/// Takes from one bucket.
pub(crate) async fn take(
    store: &dyn Store,
    limit: &Limit,
    key: &str,
    cost: u64,
) -> Result<Decision, StoreError> {
    match execute(store, Operation::Take(&[Charge::new(limit, key, cost)])).await? {
        StoreResponse::Decision(decision) => Ok(decision),
        other => panic!("not a decision: {other:?}"),
    }
}

/// A store on a runtime of its own.
#[derive(Debug)]
pub(crate) struct OnWorkerd {
    store: DurableStore,
    _workerd: Workerd,
}

impl OnWorkerd {
    pub(crate) fn start(shards: u64) -> Self {
        let builder = Workerd::builder().secret(SECRET).manual_clock();
        let workerd = builder.binding("TIDEGATE_SHARDS", &shards.to_string()).start();
        Self { store: store(&workerd, shards), _workerd: workerd }
    }
}

impl Subject for OnWorkerd {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn resolution(&self) -> Resolution {
        Resolution::Ns
    }

    fn set_time(&self, nanos: u64) -> BoxFuture<'_, ()> {
        self.store.set_manual_time(nanos);
        Box::pin(std::future::ready(()))
    }
}
