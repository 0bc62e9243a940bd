//! What the simulator has seen: one entry for every call, in the order of arrival.
//!
//! An entry has labels and numbers. Keys and prompts never get here; of a body there is a hash, by
//! which a retry is recognized. The ledger keeps the newest entries and counts those it has
//! forgotten, so a long run costs no more memory than a short one.

mod query;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::limits::charging::CallCharge;
use crate::limits::quota::Dimension;
use crate::server::request::Endpoint;

pub use query::{Spread, Usage};

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalCause {
    /// A limit had too little left.
    Limit(Dimension),
    /// The call alone was more than the limit.
    TooLarge(Dimension),
    /// Too many calls at the same time, and no place in a queue.
    Concurrency,
    /// The account was locked out.
    LockedOut,
    /// A fault said so.
    Fault,
    /// No account has the key.
    Credential,
    /// There is nothing at the path, or not for this account.
    Path,
    /// The account has no such model.
    Model,
    /// The request was not understood.
    Request,
}

impl RefusalCause {
    /// Whether the call came too soon, or was too much, and not wrong or unlucky.
    const fn is_limit(self) -> bool {
        matches!(self, Self::Limit(_) | Self::TooLarge(_) | Self::Concurrency | Self::LockedOut)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ending {
    /// It has not ended.
    Open,
    /// It was answered to the end.
    Complete,
    /// It was refused, and nothing was done for it.
    Refused,
    /// It was let in and answered with an error of the server, or reset.
    Failed,
    /// Its connection was closed in the middle of the answer, by the simulator.
    Cut,
    /// Its stream ended with an error event.
    Broken,
    /// Its caller went away before the end.
    Abandoned,
    /// A fault withheld its answer, or the rest of it, until its caller went away.
    Stalled,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The number of the call, from 1.
    pub number: u64,
    /// When it was complete at the server, since the simulator's start.
    pub at: Duration,
    /// The label of the account, if its key was known.
    pub account: Option<Arc<str>>,
    /// The model, if the account has it.
    pub model: Option<Arc<str>>,
    /// What was asked for, if there is such a path.
    pub endpoint: Option<Endpoint>,
    /// What it was charged; while it is open, by estimate.
    pub charged: CallCharge,
    /// What it really used, however it was charged: its input, and the output that was sent. Nothing
    /// before it has ended, or if it was refused or failed.
    pub used: CallCharge,
    /// The status it was answered with, if it was.
    pub status: Option<u16>,
    /// Why it was refused, if it was.
    pub refusal: Option<RefusalCause>,
    /// How many calls of the same limits were waiting or being answered then, this one included if
    /// it was let in.
    pub in_flight: u64,
    /// Whether a call of the same account with the same path and body had failed before.
    pub is_retry: bool,
    /// How it ended.
    pub ending: Ending,
    /// When it ended.
    pub ended: Option<Duration>,
    /// Whose limits it was charged to.
    pub(crate) pool: Option<usize>,
    pub(crate) fingerprint: u64,
}

/// The book of a simulator. Clones are the same book.
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
    entries: VecDeque<Entry>,
    capacity: usize,
    seen: u64,
    throttled: u64,
    /// Calls that failed and were not seen again, by fingerprint.
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

    /// The entries that are kept, oldest first.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.iter().cloned().collect()
    }

    /// How many of the entries that are kept are such.
    #[must_use]
    pub fn count(&self, predicate: impl Fn(&Entry) -> bool) -> usize {
        self.lock().entries.iter().filter(|entry| predicate(entry)).count()
    }

    /// How many calls there were in all.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.lock().seen
    }

    /// How many calls were throttled in all: answered with 429, or refused by a limit in other words,
    /// as a full Ollama does with 503.
    #[must_use]
    pub fn throttled(&self) -> u64 {
        self.lock().throttled
    }

    /// How many entries are no longer kept.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        let state = self.lock();
        state.seen - state.entries.len() as u64
    }

    /// Writes down a call, and gives it its number.
    pub(crate) fn open(&self, mut entry: Entry) -> u64 {
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

    /// Changes the entry of a call, if it is still kept.
    pub(crate) fn update(&self, number: u64, change: impl FnOnce(&mut Entry)) {
        let mut state = self.lock();
        let Some(entry) = state.find(number) else { return };
        change(entry);
    }

    /// Notes the status of an answer.
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

    /// Notes that a call has ended, the first time it is told.
    pub(crate) fn close(&self, number: u64, at: Duration, ending: Ending) {
        let mut state = self.lock();
        let Some(entry) = state.find(number).filter(|entry| entry.ending == Ending::Open) else {
            return;
        };
        entry.ending = ending;
        entry.ended = Some(at);
        let fingerprint = entry.fingerprint;
        if !matches!(ending, Ending::Complete | Ending::Abandoned) {
            state.failed.entry(fingerprint).or_default().push_back(number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerState {
    fn find(&mut self, number: u64) -> Option<&mut Entry> {
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

    /// Whether a call like this has failed, of which no retry was seen.
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
pub(crate) fn entry(at: Duration, fingerprint: u64) -> Entry {
    Entry {
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
        ending: Ending::Open,
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
            ledger.close(number, Duration::from_secs(call), Ending::Refused);
        }
        let numbers: Vec<u64> = ledger.entries().iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, [8, 9, 10]);
        assert_eq!((ledger.seen(), ledger.throttled(), ledger.forgotten()), (10, 10, 7));
        assert_eq!(ledger.lock().failed.len(), 3, "nothing is remembered of what was forgotten");
        ledger.record_status(1, 200);
        ledger.close(1, Duration::ZERO, Ending::Complete);
        assert_eq!(ledger.count(|entry| entry.ending == Ending::Complete), 0);
    }

    #[test]
    fn retry_is_a_call_equal_to_a_failed_one() {
        let ledger = Ledger::new(100);
        let send = |fingerprint, ending| {
            let number = ledger.open(entry(Duration::ZERO, fingerprint));
            ledger.close(number, Duration::ZERO, ending);
            ledger.close(number, Duration::ZERO, Ending::Failed); // too late to change it
            ledger.entries().last().unwrap().is_retry
        };
        assert!(!send(1, Ending::Refused));
        assert!(send(1, Ending::Complete));
        assert!(!send(1, Ending::Complete), "its failure has been retried");
        assert!(!send(2, Ending::Failed));
        assert!(send(2, Ending::Cut));
        assert!(send(2, Ending::Stalled));
        assert!(send(2, Ending::Complete));
    }
}
