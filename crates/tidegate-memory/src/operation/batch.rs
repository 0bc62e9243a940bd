//! Many decisions per call: lines are prefetched in batches, and the clock is read once per batch.
//!
//! Each operation is decided on its own and in order, exactly as in a separate call.

use tidegate_core::{
    Charge, Decision, Operation, StoreError, StoreResponse, StoreResponses, Target, Time,
};

use crate::operation::bare_decision::BareDecision;
use crate::operation::fast_path::FastCharge;
use crate::store::MemoryStore;
use crate::table::cell::Fingerprint;

/// Number of lines prefetched at once: about as many as a processor keeps in flight.
const BATCH: usize = 16;

impl MemoryStore {
    /// Decides many charges, each on its own and in order, and passes the index and the decision of
    /// each to `on_decision`.
    ///
    /// Lines are prefetched and the clock is read once per 16 charges, so this takes a fraction of
    /// the time of separate calls. The charges are iterated twice and must be the same both times.
    /// `on_decision` runs between decisions: if it is slow, the following decisions of the batch
    /// use a time that is out of date by as much.
    ///
    /// ```
    /// use tidegate::{MemoryStore, Policy};
    /// use tidegate_core::{Charge, Limit};
    /// let store = MemoryStore::new();
    /// let limit = Limit::named("client", Policy::per_second(1).capacity(1).build()?)?;
    /// let charges = ["alice", "bob", "alice"].map(|key| Charge::new(&limit, key, 1));
    /// let mut allowed = [false; 3];
    /// store.take_many(charges, |index, decision| allowed[index] = decision.is_allowed());
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn take_many<'c>(
        &self,
        charges: impl IntoIterator<Item = Charge<'c>, IntoIter: Clone>,
        mut on_decision: impl FnMut(usize, BareDecision<'_>),
    ) {
        let mut upcoming = charges.into_iter();
        let mut charges = upcoming.clone();
        let (mut hashes, mut index) = ([0; BATCH], 0);
        loop {
            let mut fetched = 0;
            for (hash, charge) in hashes.iter_mut().zip(upcoming.by_ref()) {
                *hash = self.prefetch(&charge);
                fetched += 1;
            }
            if fetched == 0 {
                return;
            }
            let mut now = self.now_before_lock();
            for (&hash, charge) in hashes[..fetched].iter().zip(charges.by_ref()) {
                let Target { limit, key, .. } = charge.target;
                let key_is_valid = key.check().is_ok();
                let fast = FastCharge::new(limit, charge.cost, || hash).filter(|_| key_is_valid);
                let decision = fast.and_then(|fast| {
                    let found = self.table.look_up(fast.fingerprint());
                    self.spend_fast(fast, found, now)
                });
                match decision {
                    Some(decision) => {
                        now = self.latest_time(now, decision.decided_at());
                        on_decision(index, decision);
                    }
                    None => {
                        on_decision(index, self.spend_general(limit, key, charge.cost));
                        now = self.now_before_lock();
                    }
                }
                index += 1;
            }
        }
    }

    /// Executes several operations in order.
    pub(crate) fn execute_many(&self, operations: &[Operation<'_>], answers: &mut StoreResponses) {
        for operations in operations.chunks(BATCH) {
            let mut hashes = [0; BATCH];
            for (hash, operation) in hashes.iter_mut().zip(operations) {
                *hash = self.prefetch_all(operation);
            }
            let mut now = self.now_before_lock();
            for (hash, operation) in hashes.into_iter().zip(operations) {
                let fast = match operation {
                    Operation::Take([charge]) if charge.target.key.check().is_ok() => {
                        FastCharge::new(charge.target.limit, charge.cost, || hash)
                    }
                    _ => None,
                };
                let decision = fast.and_then(|fast| {
                    let found = self.table.look_up(fast.fingerprint());
                    self.take_fast(fast, found, now)
                });
                let answer = match decision {
                    Some(decision) => Ok(StoreResponse::Decision(decision)),
                    None => self.execute(operation),
                };
                now = self.latest_time(now, grant_time(operation, &answer));
                answers.push(answer);
            }
        }
    }

    /// Returns the time for the next decision of a batch. It is not before the previous decision,
    /// which may have used a later reading. Reads the clock if the time of the previous decision is
    /// unknown.
    #[inline]
    fn latest_time(&self, now: Option<Time>, decided: Option<Time>) -> Option<Time> {
        match (now, decided) {
            (Some(now), Some(decided)) => Some(now.max(decided)),
            (Some(_), None) => self.now_before_lock(),
            (None, _) => None,
        }
    }

    /// Prefetches the line of a charge and returns its hash.
    #[inline]
    fn prefetch(&self, charge: &Charge<'_>) -> u64 {
        let hash = self.hash(&charge.target);
        self.table.look_up_and_prefetch(Fingerprint::from_hash(hash));
        hash
    }

    /// Prefetches the lines of an operation and returns the hash of its first charge.
    fn prefetch_all(&self, operation: &Operation<'_>) -> u64 {
        match operation {
            Operation::Take(charges)
            | Operation::Peek(charges)
            | Operation::Reserve { charges, .. } => {
                charges.iter().rev().map(|charge| self.prefetch(charge)).last().unwrap_or(0)
            }
            _ => 0,
        }
    }
}

/// Returns when a take was granted. Other operations may be granted for a later time.
fn grant_time(
    operation: &Operation<'_>,
    answer: &Result<StoreResponse, StoreError>,
) -> Option<Time> {
    match (operation, answer) {
        (Operation::Take(_), Ok(StoreResponse::Decision(Decision::Allowed(grant)))) => {
            Some(grant.receipt.start())
        }
        _ => None,
    }
}
