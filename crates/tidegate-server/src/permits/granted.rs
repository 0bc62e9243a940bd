//! What a permit holds: charges and slots, or a pending request of admission.

use std::sync::Arc;

use tidegate::admission::InFlight;
use tidegate::pacer::{Pacer, Permit};
use tidegate::{Limiter, Settlement, StoreError};

/// What a permit holds.
#[derive(Debug)]
pub(crate) enum Held {
    /// The charges of a list, including slots.
    List(Box<HeldList>),
    /// A request that counts as pending; `None` if admission was disabled.
    Pending(#[expect(dead_code, reason = "counts until it is dropped")] Option<InFlight>),
}

impl Held {
    /// Returns the list of charges, if there is one.
    pub(crate) fn list(&self) -> Option<&HeldList> {
        match self {
            Self::List(list) => Some(list),
            Self::Pending(_) => None,
        }
    }

    /// Settles each charge to its actual cost. Returns `None` if that was done before or there is
    /// nothing to settle. Runs to completion even if the future is dropped.
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

    /// Settles the charges if `actual` is given, then frees the slots. Returns when the store has
    /// confirmed. Runs to completion even if the future is dropped.
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

/// A granted list of charges.
#[derive(Debug)]
pub(crate) struct HeldList {
    /// Locked during settlement and release.
    state: tokio::sync::Mutex<ListState>,
    pub(crate) charges: Vec<HeldCharge>,
    _queue: Arc<Pacer>,
    _limiters: Vec<Arc<Limiter>>,
}

#[derive(Debug)]
struct ListState {
    /// `None` after release.
    permit: Option<Permit>,
    settled: bool,
}

/// One charge of a granted list.
#[derive(Clone, Debug)]
pub(crate) struct HeldCharge {
    pub(crate) limit: String,
    pub(crate) key: String,
    pub(crate) cost: u64,
    pub(crate) is_slot: bool,
}

impl HeldList {
    /// Creates the list of a granted permit. `queue` and `limiters` live as long as it does.
    pub(crate) fn new(
        permit: Permit,
        charges: Vec<HeldCharge>,
        queue: Arc<Pacer>,
        limiters: Vec<Arc<Limiter>>,
    ) -> Self {
        let state = tokio::sync::Mutex::new(ListState { permit: Some(permit), settled: false });
        Self { state, charges, _queue: queue, _limiters: limiters }
    }

    /// Returns whether slot leases expired in the store before they were renewed.
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
