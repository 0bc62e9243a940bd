//! The tab of a request: what was charged for it, kept until its response is over.
//!
//! When the last byte has been handed over, or the response is dropped, the difference to the real
//! cost is settled and slots are given back. That happens exactly once, at once where the store
//! answers at once, else in a task.

use std::sync::Arc;

use http::StatusCode;
use smallvec::SmallVec;
use tidegate::admission::{Bill, InFlight};
use tidegate::{Correction, Policy, Receipt, Snapshot, StoreError, Target};
use tokio::runtime::Handle;

use super::limits::{Charged, Charges};
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
        let deltas = self.deltas(served);
        if let Some(result) = self.carry_out_now(&deltas) {
            self.told(result);
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                let result = self.carry_out(&deltas).await;
                self.told(result);
            })),
            Err(_) => self.settings.troubles.no_runtime(),
        }
    }

    /// By how much each charge differs from the real cost.
    fn deltas(&self, served: &Served) -> SmallVec<[i64; 2]> {
        match &self.to {
            Creditor::Limits { charges, .. } => {
                let limits = &self.settings.limits;
                let snapshots = limits.snapshots(charges);
                let delta = |(charged, terms): (&Charged, &Snapshot)| {
                    match terms.limit().policy() {
                        // Slots are given back as a whole.
                        Policy::Concurrency(_) => 0,
                        _ => limits
                            .real_cost(charged, served)
                            .map_or(0, |real| difference(real, charged.cost)),
                    }
                };
                charges.iter().zip(&snapshots).map(delta).collect()
            }
            Creditor::Admission { asking, .. } => {
                let tiers = self.settings.tiers.as_ref();
                let real = tiers.and_then(|tiers| tiers.settle.as_ref()).map(|real| real(served));
                let delta = real.map_or(0, |real| difference(real, asking.cost));
                std::iter::once(delta).collect()
            }
        }
    }

    /// Settles and gives back now if the store need not be waited for. A store that is waited for
    /// is so for both, so that nothing is done twice.
    fn carry_out_now(&self, deltas: &[i64]) -> Option<Result<(), StoreError>> {
        let settles = deltas.iter().any(|&delta| delta != 0);
        let (charges, receipt) = match &self.to {
            Creditor::Limits { charges, receipt } => (charges, receipt),
            Creditor::Admission { asking, bill } => {
                let (Some(tiers), true) = (&self.settings.tiers, settles) else {
                    return Some(Ok(()));
                };
                return Some(tiers.settle_now(asking, deltas[0], bill)?.map(drop));
            }
        };
        let snapshots = self.settings.limits.snapshots(charges);
        let Some(engine) = self.engine(charges) else { return Some(Ok(())) };
        let corrections = corrections(charges, &snapshots, deltas);
        if settles {
            if let Err(error) = engine.settle(&corrections, Some(receipt)).at_once()? {
                return Some(Err(error));
            }
        }
        if holds_slots(&snapshots) {
            if let Err(error) = engine.release(&targets(&corrections), receipt).at_once()? {
                return Some(Err(error));
            }
        }
        Some(Ok(()))
    }

    async fn carry_out(&self, deltas: &[i64]) -> Result<(), StoreError> {
        let settles = deltas.iter().any(|&delta| delta != 0);
        let (charges, receipt) = match &self.to {
            Creditor::Limits { charges, receipt } => (charges, receipt),
            Creditor::Admission { asking, bill } => {
                let (Some(tiers), true) = (&self.settings.tiers, settles) else { return Ok(()) };
                return tiers.settle(asking, deltas[0], bill).await.map(drop);
            }
        };
        let snapshots = self.settings.limits.snapshots(charges);
        let Some(engine) = self.engine(charges) else { return Ok(()) };
        let corrections = corrections(charges, &snapshots, deltas);
        let mut settled = Ok(());
        if settles {
            settled = engine.settle(&corrections, Some(receipt)).await.map(drop);
        }
        if holds_slots(&snapshots) {
            engine.release(&targets(&corrections), receipt).await?;
        }
        settled
    }

    fn engine(&self, charges: &Charges) -> Option<&tidegate::Engine<dyn tidegate::Store>> {
        Some(self.settings.limits.rule(charges.first()?).limiter.engine())
    }

    fn told(&self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            self.settings.troubles.not_settled(self.settings.wall_time(), &error);
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
