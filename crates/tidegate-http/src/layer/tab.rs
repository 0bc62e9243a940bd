//! The tab of a request: what was charged for it, kept until its response is over.
//!
//! When the last byte has been handed over, or the response is dropped, the difference to the real
//! cost is settled and slots are given back. That happens exactly once, at once where the store
//! answers at once, else in a task.

use std::sync::Arc;

use http::StatusCode;
use smallvec::SmallVec;
use tidegate::{Correction, Policy, Receipt, Snapshot, StoreError, Target};
use tokio::runtime::Handle;

use super::limits::{Charged, Charges};
use super::served::{End, Served};
use super::settings::Settings;

/// What is open for one request.
pub(super) struct Tab {
    owed: Option<Owed>,
    status: Option<StatusCode>,
    bytes: u64,
    /// The length of the content, if it is known.
    length: Option<u64>,
    /// There is no content to send, whatever its length says: the answer to a HEAD.
    bodiless: bool,
}

/// What was charged, and where.
struct Owed {
    settings: Arc<Settings>,
    charges: Charges,
    receipt: Receipt,
}

/// What is still to be done when a response is over.
#[derive(Clone, Copy)]
struct Due {
    settle: bool,
    release: bool,
}

impl Tab {
    pub(super) fn open(
        settings: Arc<Settings>,
        charges: Charges,
        receipt: Receipt,
        bodiless: bool,
    ) -> Box<Self> {
        let owed = Some(Owed { settings, charges, receipt });
        Box::new(Self { owed, status: None, bytes: 0, length: None, bodiless })
    }

    /// There is a response.
    pub(super) fn responds(&mut self, status: StatusCode, length: Option<u64>) {
        self.status = Some(status);
        self.length = length;
        self.bodiless |= status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    }

    /// Content is handed over.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub(super) fn close(mut self: Box<Self>, end: End) {
        self.settle(end);
    }

    fn settle(&mut self, end: End) {
        if let Some(owed) = self.owed.take() {
            owed.settle(&Served { status: self.status, bytes: self.bytes, end });
        }
    }
}

impl Drop for Tab {
    /// Servers drop a body without having seen its end when they know its length.
    fn drop(&mut self) {
        let whole = self.status.is_some() && (self.bodiless || self.length == Some(self.bytes));
        self.settle(if whole { End::Whole } else { End::Cut });
    }
}

impl Owed {
    fn settle(self, served: &Served) {
        let limits = &self.settings.limits;
        let snapshots = limits.snapshots(&self.charges);
        let correction = |(charged, terms): (&Charged, &Snapshot)| match terms.limit().policy() {
            // Slots are given back as a whole.
            Policy::Concurrency(_) => 0,
            _ => limits.real_cost(charged, served).map_or(0, |real| difference(real, charged.cost)),
        };
        let deltas: SmallVec<[i64; 2]> =
            self.charges.iter().zip(&snapshots).map(correction).collect();
        let mut due = Due {
            settle: deltas.iter().any(|&delta| delta != 0),
            release: holds_slots(&snapshots),
        };
        self.carry_out_now(&snapshots, &deltas, &mut due);
        if !due.settle && !due.release {
            return;
        }
        drop(snapshots);
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { self.carry_out(&deltas, due).await })),
            Err(_) => self.settings.troubles.no_runtime(),
        }
    }

    /// Does what is due as far as the store need not be waited for.
    fn carry_out_now(&self, snapshots: &[Snapshot], deltas: &[i64], due: &mut Due) {
        let Some(engine) = self.engine() else { return };
        let corrections = self.corrections(snapshots, deltas);
        if due.settle {
            if let Some(answer) = engine.settle(&corrections, Some(&self.receipt)).at_once() {
                due.settle = false;
                self.told(answer.err());
            }
        }
        if due.release {
            let targets = targets(&corrections);
            if let Some(answer) = engine.release(&targets, &self.receipt).at_once() {
                due.release = false;
                self.told(answer.err());
            }
        }
    }

    /// Does what is due.
    async fn carry_out(&self, deltas: &[i64], due: Due) {
        let snapshots = self.settings.limits.snapshots(&self.charges);
        let Some(engine) = self.engine() else { return };
        let corrections = self.corrections(&snapshots, deltas);
        if due.settle {
            self.told(engine.settle(&corrections, Some(&self.receipt)).await.err());
        }
        if due.release {
            self.told(engine.release(&targets(&corrections), &self.receipt).await.err());
        }
    }

    fn engine(&self) -> Option<&tidegate::Engine<dyn tidegate::Store>> {
        let first = self.charges.first()?;
        Some(self.settings.limits.rule(first).limiter.engine())
    }

    fn corrections<'a>(
        &'a self,
        snapshots: &'a [Snapshot],
        deltas: &[i64],
    ) -> SmallVec<[Correction<'a>; 2]> {
        let of = |((charged, terms), delta): ((&'a Charged, &'a Snapshot), &i64)| Correction {
            target: terms.target(charged.key.as_str()),
            delta: *delta,
        };
        self.charges.iter().zip(snapshots).zip(deltas).map(of).collect()
    }

    fn told(&self, error: Option<StoreError>) {
        if let Some(error) = error {
            self.settings.troubles.not_settled(self.settings.limits.wall_time(), &error);
        }
    }
}

/// Whether any of these limits counts slots, which are to be given back.
pub(super) fn holds_slots(snapshots: &[Snapshot]) -> bool {
    snapshots.iter().any(|terms| matches!(terms.limit().policy(), Policy::Concurrency(_)))
}

fn targets<'a>(corrections: &[Correction<'a>]) -> SmallVec<[Target<'a>; 2]> {
    corrections.iter().map(|correction| correction.target).collect()
}

fn difference(real: u64, taken: u64) -> i64 {
    let difference = i128::from(real) - i128::from(taken);
    let most = if difference < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(difference).unwrap_or(most)
}
