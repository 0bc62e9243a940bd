//! The tab of a request: what was charged for it, kept until its response is over.
//!
//! When the last byte has been handed over, or the response is dropped, the difference to the real
//! cost is settled and slots are given back. That happens exactly once, at once where the store
//! answers at once, else in a task.

use std::sync::Arc;

use http::StatusCode;
use smallvec::{SmallVec, smallvec};
use tidegate::admission::{Bill, InFlight};
use tidegate::{Batch, Correction, Receipt, Snapshot, StoreError, Target};
use tokio::runtime::Handle;

use super::limits::{Charged, Charges, counts_slots, holds_slots};
use super::rule::Real;
use super::served::{End, Served};
use super::settings::Settings;
use super::tiers::Asking;

/// What is open for one request.
pub(super) struct Tab {
    owed: Option<Owed>,
    /// The request is pending as long as this lives.
    _in_flight: Option<InFlight>,
    status: Option<StatusCode>,
    bytes: u64,
    /// The length of the content, if it is known.
    length: Option<u64>,
    /// There is no content to send, whatever its length says: the answer to a HEAD.
    bodiless: bool,
}

/// What was charged, and where.
pub(super) struct Owed {
    settings: Arc<Settings>,
    to: Creditor,
}

/// Who was charged.
enum Creditor {
    Limits { charges: Charges, receipt: Receipt },
    Admission { asking: Asking, bill: Bill },
}

/// By how much each charge is corrected.
type Deltas = SmallVec<[i64; 2]>;

/// What is still to be done. What has been done is struck off, so that a store that must be waited
/// for in between does nothing twice.
struct Due {
    deltas: Deltas,
    settle: bool,
    release: bool,
}

impl Tab {
    pub(super) fn open(
        owed: Option<Owed>,
        in_flight: Option<InFlight>,
        bodiless: bool,
    ) -> Box<Self> {
        Box::new(Self {
            owed,
            _in_flight: in_flight,
            status: None,
            bytes: 0,
            length: None,
            bodiless,
        })
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
    pub(super) const fn charges(
        settings: Arc<Settings>,
        charges: Charges,
        receipt: Receipt,
    ) -> Self {
        Self { settings, to: Creditor::Limits { charges, receipt } }
    }

    pub(super) const fn admission(settings: Arc<Settings>, asking: Asking, bill: Bill) -> Self {
        Self { settings, to: Creditor::Admission { asking, bill } }
    }

    fn settle(self, served: &Served) {
        let mut due = self.due(served);
        if self.carry_out_now(&mut due) {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { self.carry_out(due).await })),
            Err(_) => self.settings.log.no_runtime(),
        }
    }

    fn due(&self, served: &Served) -> Due {
        match &self.to {
            Creditor::Limits { charges, .. } => {
                let snapshots = self.settings.limits.snapshots(charges);
                let deltas = self.deltas(charges, &snapshots, served);
                Due { settle: corrects(&deltas), release: holds_slots(&snapshots), deltas }
            }
            Creditor::Admission { asking, .. } => {
                let tiers = self.settings.tiers.as_ref();
                let real = self.real_cost(tiers.and_then(|tiers| tiers.settle.as_ref()), served);
                let delta = real.map_or(0, |real| difference(real, asking.cost));
                Due { settle: delta != 0, release: false, deltas: smallvec![delta] }
            }
        }
    }

    /// By how much each charge differs from the real cost. What the layer has to tell it is asked
    /// once, whatever the number of limits.
    fn deltas(&self, charges: &[Charged], snapshots: &[Snapshot], served: &Served) -> Deltas {
        let limits = &self.settings.limits;
        let mut shared = None;
        let delta = |(charged, terms): (&Charged, &Snapshot)| {
            // Slots are given back as a whole.
            if counts_slots(terms.limit().policy()) {
                return 0;
            }
            let real = match &limits.rule(charged).settle {
                Some(own) => self.real_cost(Some(own), served),
                None => *shared.get_or_insert_with(|| self.real_cost(limits.settle(), served)),
            };
            real.map_or(0, |real| difference(real, charged.cost))
        };
        charges.iter().zip(snapshots).map(delta).collect()
    }

    /// What a request has really cost, if anybody can tell.
    fn real_cost(&self, real: Option<&Real>, served: &Served) -> Option<u64> {
        let real = real?;
        self.settings.log.contained(|| real(served))
    }

    /// Does what the store can do without being waited for; whether that was all of it.
    fn carry_out_now(&self, due: &mut Due) -> bool {
        if due.settle {
            let Some(settled) = self.settle_now(&due.deltas) else { return false };
            due.settle = false;
            self.told(settled);
        }
        if due.release {
            let Some(released) = self.release_now() else { return false };
            due.release = false;
            self.told(released);
        }
        true
    }

    /// Does the rest, waiting for the store. Both go to it in one call; slots are given back also
    /// if nothing could be settled.
    async fn carry_out(&self, due: Due) {
        match &self.to {
            Creditor::Limits { charges, receipt } => {
                let snapshots = self.settings.limits.snapshots(charges);
                let corrections = corrections(charges, &snapshots, &due.deltas);
                let targets = targets(charges, &snapshots);
                let Some(engine) = self.engine(charges) else { return };
                let settle = due.settle.then(|| engine.settle(&corrections, Some(receipt)).any());
                let release = due.release.then(|| engine.release(&targets, receipt).any());
                let answers = Batch::from_iter(settle.into_iter().chain(release)).await;
                answers.into_iter().for_each(|answer| self.told(answer.map(drop)));
            }
            Creditor::Admission { asking, bill } => {
                if let (Some(tiers), [delta]) = (&self.settings.tiers, &*due.deltas) {
                    self.told(tiers.settle(asking, *delta, bill).await.map(drop));
                }
            }
        }
    }

    fn settle_now(&self, deltas: &[i64]) -> Option<Result<(), StoreError>> {
        match &self.to {
            Creditor::Limits { charges, receipt } => {
                let snapshots = self.settings.limits.snapshots(charges);
                let corrections = corrections(charges, &snapshots, deltas);
                let Some(engine) = self.engine(charges) else { return Some(Ok(())) };
                Some(engine.settle(&corrections, Some(receipt)).at_once()?.map(drop))
            }
            Creditor::Admission { asking, bill } => {
                let (Some(tiers), [delta]) = (&self.settings.tiers, deltas) else {
                    return Some(Ok(()));
                };
                Some(tiers.settle_now(asking, *delta, bill)?.map(drop))
            }
        }
    }

    fn release_now(&self) -> Option<Result<(), StoreError>> {
        let Creditor::Limits { charges, receipt } = &self.to else { return Some(Ok(())) };
        let snapshots = self.settings.limits.snapshots(charges);
        let targets = targets(charges, &snapshots);
        let Some(engine) = self.engine(charges) else { return Some(Ok(())) };
        Some(engine.release(&targets, receipt).at_once()?.map(drop))
    }

    fn engine(&self, charges: &Charges) -> Option<&tidegate::Engine<dyn tidegate::Store>> {
        Some(self.settings.limits.rule(charges.first()?).limiter.engine())
    }

    fn told(&self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            self.settings.log.not_settled(self.settings.wall_time(), &error);
        }
    }
}

fn corrections<'a>(
    charges: &'a [Charged],
    snapshots: &'a [Snapshot],
    deltas: &[i64],
) -> SmallVec<[Correction<'a>; 2]> {
    let of = |((charged, terms), delta): ((&'a Charged, &'a Snapshot), &i64)| Correction {
        target: terms.target(charged.key.as_str()),
        delta: *delta,
    };
    charges.iter().zip(snapshots).zip(deltas).map(of).collect()
}

fn targets<'a>(charges: &'a [Charged], snapshots: &'a [Snapshot]) -> SmallVec<[Target<'a>; 2]> {
    let pairs = charges.iter().zip(snapshots);
    pairs.map(|(charged, terms)| terms.target(charged.key.as_str())).collect()
}

fn corrects(deltas: &[i64]) -> bool {
    deltas.iter().any(|&delta| delta != 0)
}

fn difference(real: u64, taken: u64) -> i64 {
    let difference = i128::from(real) - i128::from(taken);
    let most = if difference < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(difference).unwrap_or(most)
}
