//! The ledger: one entry per call, in order of arrival.
//!
//! Entries contain labels and numbers, never keys or prompts. A hash of the body serves to
//! recognize retries. The ledger keeps the newest entries and counts evicted ones, so its memory is
//! bounded.

mod query;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::limits::capacity::Work;
use crate::limits::charging::CallCharge;
use crate::limits::quota::Dimension;
use crate::server::request::Endpoint;

pub use query::{RetryDistribution, Usage};

/// Why a call was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalCause {
    /// A limit was exhausted.
    Limit(Dimension),
    /// The call alone exceeds the limit.
    TooLarge(Dimension),
    /// Too many concurrent calls, and the queue was full.
    Concurrency,
    /// The account was locked out.
    LockedOut,
    /// A fault was scheduled or injected.
    Fault,
    /// No account has the key.
    Credential,
    /// The path does not exist for this account.
    Path,
    /// The account has no such model.
    Model,
    /// The request was malformed.
    Request,
}

impl RefusalCause {
    /// Returns whether a limit, rather than an error, caused the rejection.
    const fn is_limit(self) -> bool {
        matches!(self, Self::Limit(_) | Self::TooLarge(_) | Self::Concurrency | Self::LockedOut)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallEnding {
    /// Still in progress.
    Open,
    /// The response was sent completely.
    Complete,
    /// Rejected before admission.
    Refused,
    /// Admitted, then failed with a server error or a reset.
    Failed,
    /// The simulator closed the connection in the middle of the response.
    Cut,
    /// The stream ended with an error event.
    Broken,
    /// The caller disconnected before the end.
    Abandoned,
    /// A fault withheld all or part of the response until the caller disconnected.
    Stalled,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerEntry {
    /// Number of the call, counted from 1.
    pub number: u64,
    /// When the request was received completely, since the start of the simulator.
    pub at: Duration,
    /// Label of the account, if the key is known.
    pub account: Option<Arc<str>>,
    /// Name of the model, if the account has it.
    pub model: Option<Arc<str>>,
    /// The endpoint, if the path exists.
    pub endpoint: Option<Endpoint>,
    /// The charge; an estimate while the call is in progress.
    pub charged: CallCharge,
    /// Actual usage, independent of the charge: input, and output sent. Zero while the call is in
    /// progress, or if it was rejected or failed.
    pub used: CallCharge,
    /// Status of the response, if one was sent.
    pub status: Option<u16>,
    /// Cause of the rejection, if it was rejected.
    pub refusal: Option<RefusalCause>,
    /// Number of calls that were queued or in progress under the same limits, including this one if
    /// it was admitted.
    pub in_flight: u64,
    /// Whether a call of the same account with the same path and body failed before.
    pub is_retry: bool,
    /// How the call ended.
    pub ending: CallEnding,
    /// When the call ended.
    pub ended: Option<Duration>,
    /// The pool that was charged.
    pub(crate) pool: Option<usize>,
    pub(crate) fingerprint: u64,
}

/// The record of all calls of a simulator. Clones share the same record.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use tidegate_sim::{Account, Dialect, Limits, Simulator};
///
/// let account = Account::new(Dialect::OpenAi, "main", "sk-1").any_model(Limits::new());
/// let simulator = Simulator::builder().account(account).build()?;
/// let ledger = simulator.ledger();
/// assert_eq!(ledger.seen(), 0);
/// assert_eq!(ledger.throttled(), 0);
/// # Ok::<(), tidegate_sim::BuildError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ledger {
    state: Arc<Mutex<LedgerState>>,
}

#[derive(Debug)]
struct LedgerState {
    entries: VecDeque<LedgerEntry>,
    capacity: usize,
    seen: u64,
    throttled: u64,
    /// Failed calls that were not retried yet, by fingerprint.
    failed: HashMap<u64, VecDeque<u64>>,
}

impl Ledger {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = LedgerState {
            entries: VecDeque::new(),
            capacity: capacity.max(1),
            seen: 0,
            throttled: 0,
            failed: HashMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the entries kept, oldest first.
    #[must_use]
    pub fn entries(&self) -> Vec<LedgerEntry> {
        self.lock().entries.iter().cloned().collect()
    }

    /// Returns the number of kept entries that match `predicate`.
    #[must_use]
    pub fn count(&self, predicate: impl Fn(&LedgerEntry) -> bool) -> usize {
        self.lock().entries.iter().filter(|entry| predicate(entry)).count()
    }

    /// Returns what was charged for the kept calls that were answered completely.
    #[must_use]
    pub fn answered(&self) -> Work {
        let state = self.lock();
        let complete = state.entries.iter().filter(|entry| entry.ending == CallEnding::Complete);
        complete.fold(Work::default(), |work, entry| Work {
            requests: work.requests + entry.charged.requests,
            tokens: work.tokens + entry.charged.total(),
        })
    }

    /// Returns the total number of calls.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.lock().seen
    }

    /// Returns the total number of throttled calls: those with status 429, and those rejected by a
    /// limit with another status, such as the 503 of a full Ollama.
    #[must_use]
    pub fn throttled(&self) -> u64 {
        self.lock().throttled
    }

    /// Returns the number of evicted entries.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        let state = self.lock();
        state.seen - state.entries.len() as u64
    }

    /// Records a call and returns its number.
    pub(crate) fn open(&self, mut entry: LedgerEntry) -> u64 {
        let mut state = self.lock();
        state.seen += 1;
        entry.number = state.seen;
        entry.is_retry = state.take_failed(entry.fingerprint);
        if state.entries.len() == state.capacity {
            state.forget_oldest();
        }
        state.entries.push_back(entry);
        state.seen
    }

    /// Updates the entry of a call, if it is still kept.
    pub(crate) fn update(&self, number: u64, change: impl FnOnce(&mut LedgerEntry)) {
        let mut state = self.lock();
        let Some(entry) = state.find(number) else { return };
        change(entry);
    }

    /// Records the status of a response.
    pub(crate) fn record_status(&self, number: u64, status: u16) {
        let mut state = self.lock();
        let entry = state.find(number);
        let is_limited =
            entry.as_ref().and_then(|entry| entry.refusal).is_some_and(RefusalCause::is_limit);
        if let Some(entry) = entry {
            entry.status = Some(status);
        }
        state.throttled += u64::from(status == 429 || is_limited);
    }

    /// Records the end of a call; later calls of this method have no effect.
    pub(crate) fn close(&self, number: u64, at: Duration, ending: CallEnding) {
        let mut state = self.lock();
        let Some(entry) = state.find(number).filter(|entry| entry.ending == CallEnding::Open)
        else {
            return;
        };
        entry.ending = ending;
        entry.ended = Some(at);
        let fingerprint = entry.fingerprint;
        if !matches!(ending, CallEnding::Complete | CallEnding::Abandoned) {
            state.failed.entry(fingerprint).or_default().push_back(number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerState {
    fn find(&mut self, number: u64) -> Option<&mut LedgerEntry> {
        let oldest = self.entries.front()?.number;
        let place = usize::try_from(number.checked_sub(oldest)?).ok()?;
        self.entries.get_mut(place)
    }

    fn forget_oldest(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        if let Some(numbers) = self.failed.get_mut(&entry.fingerprint) {
            numbers.retain(|number| *number != entry.number);
            if numbers.is_empty() {
                self.failed.remove(&entry.fingerprint);
            }
        }
    }

    /// Returns whether an equal call failed that was not retried yet, and marks it as retried.
    fn take_failed(&mut self, fingerprint: u64) -> bool {
        let Some(numbers) = self.failed.get_mut(&fingerprint) else { return false };
        numbers.pop_front();
        if numbers.is_empty() {
            self.failed.remove(&fingerprint);
        }
        true
    }
}

#[cfg(test)]
pub(crate) fn entry(at: Duration, fingerprint: u64) -> LedgerEntry {
    LedgerEntry {
        number: 0,
        at,
        account: Some("main".into()),
        model: Some("m".into()),
        endpoint: Some(Endpoint::Chat),
        charged: CallCharge { requests: 1, ..CallCharge::default() },
        used: CallCharge::default(),
        status: None,
        refusal: None,
        in_flight: 1,
        is_retry: false,
        ending: CallEnding::Open,
        ended: None,
        pool: Some(0),
        fingerprint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_entries_are_kept_and_totals_stay_correct() {
        let ledger = Ledger::new(3);
        for call in 0..10 {
            let number = ledger.open(entry(Duration::from_secs(call), call));
            ledger.record_status(number, 429);
            ledger.close(number, Duration::from_secs(call), CallEnding::Refused);
        }
        let numbers: Vec<u64> = ledger.entries().iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, [8, 9, 10]);
        assert_eq!((ledger.seen(), ledger.throttled(), ledger.evicted()), (10, 10, 7));
        assert_eq!(ledger.lock().failed.len(), 3, "evicted entries leave no failures behind");
        ledger.record_status(1, 200);
        ledger.close(1, Duration::ZERO, CallEnding::Complete);
        assert_eq!(ledger.count(|entry| entry.ending == CallEnding::Complete), 0);
    }

    #[test]
    fn only_complete_calls_count_as_answered() {
        let ledger = Ledger::new(10);
        for ending in [CallEnding::Complete, CallEnding::Refused, CallEnding::Complete] {
            let number = ledger.open(entry(Duration::ZERO, 0));
            ledger.update(number, |entry| entry.charged.input = 7);
            ledger.close(number, Duration::ZERO, ending);
        }
        assert_eq!(ledger.answered(), Work { requests: 2, tokens: 14 });
    }

    #[test]
    fn retry_is_a_call_equal_to_a_failed_one() {
        let ledger = Ledger::new(100);
        let send = |fingerprint, ending| {
            let number = ledger.open(entry(Duration::ZERO, fingerprint));
            ledger.close(number, Duration::ZERO, ending);
            ledger.close(number, Duration::ZERO, CallEnding::Failed); // no effect
            ledger.entries().last().unwrap().is_retry
        };
        assert!(!send(1, CallEnding::Refused));
        assert!(send(1, CallEnding::Complete));
        assert!(!send(1, CallEnding::Complete), "the failure has been retried already");
        assert!(!send(2, CallEnding::Failed));
        assert!(send(2, CallEnding::Cut));
        assert!(send(2, CallEnding::Stalled));
        assert!(send(2, CallEnding::Complete));
    }
}
