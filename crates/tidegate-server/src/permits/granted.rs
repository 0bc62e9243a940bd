//! What a permit holds: charges and slots, or a pending request of admission.

use std::sync::Arc;

use tidegate::admission::InFlight;
use tidegate::pacer::{Pacer, Permit};
use tidegate::{Limiter, Settlement, StoreError};

/// What a permit holds.
#[derive(Debug)]
pub(crate) enum GrantedPermit {
    /// The charges of a list, including slots.
    Charges(Box<GrantedCharges>),
    /// A request that counts as pending; `None` if admission was disabled.
    Pending(#[expect(dead_code, reason = "counts until it is dropped")] Option<InFlight>),
}

impl GrantedPermit {
    /// Returns the list of charges, if there is one.
    pub(crate) fn charges(&self) -> Option<&GrantedCharges> {
        match self {
            Self::Charges(charges) => Some(charges),
            Self::Pending(_) => None,
        }
    }

    /// Settles each charge to its actual cost. Returns `None` if that was done before or there is
    /// nothing to settle. Runs to completion even if the future is dropped.
    pub(crate) async fn settle(
        self: Arc<Self>,
        actual: Vec<u64>,
    ) -> Result<Option<Settlement>, StoreError> {
        let settle = async move {
            match self.charges() {
                Some(granted) => granted.state.lock().await.settle(&actual).await,
                None => Ok(None),
            }
        };
        run_to_completion(settle).await
    }

    /// Settles the charges if `actual` is given, then frees the slots. Returns when the store has
    /// confirmed. Runs to completion even if the future is dropped.
    pub(crate) async fn release(
        self: Arc<Self>,
        actual: Option<Vec<u64>>,
    ) -> Result<Option<Settlement>, StoreError> {
        let release = async move {
            let Some(granted) = self.charges() else { return Ok(None) };
            let mut state = granted.state.lock().await;
            let settled = match actual {
                Some(actual) => state.settle(&actual).await,
                None => Ok(None),
            };
            if let Some(permit) = state.permit.take() {
                permit.release().await;
            }
            settled
        };
        run_to_completion(release).await
    }
}

async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let result = tokio::spawn(work).await;
    result.unwrap_or_else(|error| Err(StoreError::Unavailable(error.into())))
}

/// A granted list of charges.
#[derive(Debug)]
pub(crate) struct GrantedCharges {
    /// Locked during settlement and release.
    state: tokio::sync::Mutex<ChargesState>,
    pub(crate) charges: Vec<GrantedCharge>,
    _queue: Arc<Pacer>,
    _limiters: Vec<Arc<Limiter>>,
}

#[derive(Debug)]
struct ChargesState {
    /// `None` after release.
    permit: Option<Permit>,
    settled: bool,
}

/// One charge of a granted list.
#[derive(Clone, Debug)]
pub(crate) struct GrantedCharge {
    pub(crate) limit: String,
    pub(crate) key: String,
    pub(crate) cost: u64,
    pub(crate) is_slot: bool,
}

impl GrantedCharges {
    /// Creates the list of a granted permit. `queue` and `limiters` live as long as it does.
    pub(crate) fn new(
        permit: Permit,
        charges: Vec<GrantedCharge>,
        queue: Arc<Pacer>,
        limiters: Vec<Arc<Limiter>>,
    ) -> Self {
        let state = tokio::sync::Mutex::new(ChargesState { permit: Some(permit), settled: false });
        Self { state, charges, _queue: queue, _limiters: limiters }
    }

    /// Returns whether slot leases expired in the store before they were renewed.
    pub(super) fn is_lost(&self) -> bool {
        let state = self.state.try_lock();
        state.is_ok_and(|state| state.permit.as_ref().is_some_and(Permit::has_lost_slots))
    }
}

impl ChargesState {
    async fn settle(&mut self, actual: &[u64]) -> Result<Option<Settlement>, StoreError> {
        let Some(permit) = self.permit.as_mut().filter(|_| !self.settled) else { return Ok(None) };
        let settlement = permit.settle(actual).await?;
        self.settled = true;
        Ok(Some(settlement))
    }
}
