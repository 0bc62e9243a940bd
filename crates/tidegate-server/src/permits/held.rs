//! What a permit holds: a list that was charged, or a request that counts as pending.

use std::sync::Arc;

use tidegate::admission::InFlight;
use tidegate::pacer::{Pacer, Permit};
use tidegate::{Limiter, Settlement, StoreError};

/// What a permit holds.
#[derive(Debug)]
pub(crate) enum Held {
    /// What a list was charged, slots included.
    List(Box<HeldList>),
    /// A request that counts as pending; `None` while admission is switched off.
    Pending(#[expect(dead_code, reason = "counts until it is dropped")] Option<InFlight>),
}

impl Held {
    /// The list that it is for, if it is for one.
    pub(crate) fn list(&self) -> Option<&HeldList> {
        match self {
            Self::List(list) => Some(list),
            Self::Pending(_) => None,
        }
    }

    /// Corrects each charge to what it really cost, once; `None` if that was done before, or there
    /// is nothing to correct. To its end, whether or not the caller waits for it.
    pub(crate) async fn settle(
        self: Arc<Self>,
        actual: Vec<u64>,
    ) -> Result<Option<Settlement>, StoreError> {
        let settling = async move {
            match self.list() {
                Some(list) => list.state.lock().await.settle(&actual).await,
                None => Ok(None),
            }
        };
        to_its_end(settling).await
    }

    /// Gives the slots back, after settling if there is something to settle. Returns when the store
    /// has heard of it, and gets there also if the caller does not wait for it.
    pub(crate) async fn release(
        self: Arc<Self>,
        actual: Option<Vec<u64>>,
    ) -> Result<Option<Settlement>, StoreError> {
        let releasing = async move {
            let Some(list) = self.list() else { return Ok(None) };
            let mut state = list.state.lock().await;
            let settled = match actual {
                Some(actual) => state.settle(&actual).await,
                None => Ok(None),
            };
            if let Some(permit) = state.permit.take() {
                permit.release().await;
            }
            settled
        };
        to_its_end(releasing).await
    }
}

async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| Err(StoreError::Unavailable(error.into())))
}

/// A list that was granted.
#[derive(Debug)]
pub(crate) struct HeldList {
    /// Locked while it is settled or released.
    state: tokio::sync::Mutex<ListState>,
    pub(crate) charges: Vec<HeldCharge>,
    _queue: Arc<Pacer>,
    _limiters: Vec<Arc<Limiter>>,
}

#[derive(Debug)]
struct ListState {
    /// `None` once it is released.
    permit: Option<Permit>,
    settled: bool,
}

/// One charge of a list that was granted.
#[derive(Clone, Debug)]
pub(crate) struct HeldCharge {
    pub(crate) limit: String,
    pub(crate) key: String,
    pub(crate) cost: u64,
    pub(crate) is_slot: bool,
}

impl HeldList {
    /// What a permit was granted for, with what must live as long as it does.
    pub(crate) fn new(
        permit: Permit,
        charges: Vec<HeldCharge>,
        queue: Arc<Pacer>,
        limiters: Vec<Arc<Limiter>>,
    ) -> Self {
        let state = tokio::sync::Mutex::new(ListState { permit: Some(permit), settled: false });
        Self { state, charges, _queue: queue, _limiters: limiters }
    }

    /// Whether slots of it ran out in the store before they were renewed.
    pub(super) fn is_lost(&self) -> bool {
        let state = self.state.try_lock();
        state.is_ok_and(|state| state.permit.as_ref().is_some_and(Permit::is_lost))
    }
}

impl ListState {
    async fn settle(&mut self, actual: &[u64]) -> Result<Option<Settlement>, StoreError> {
        let Some(permit) = self.permit.as_mut().filter(|_| !self.settled) else { return Ok(None) };
        let settlement = permit.settle(actual).await?;
        self.settled = true;
        Ok(Some(settlement))
    }
}
