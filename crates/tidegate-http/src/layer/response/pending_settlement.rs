//! Charges of a request that are settled when its response ends.
//!
//! When the last byte has been handed over, or the response is dropped, the difference to the
//! actual cost is settled and slots are released, exactly once: before the call returns on a local
//! store, else in a task.

use std::sync::Arc;

use http::StatusCode;
use smallvec::{SmallVec, smallvec};
use tidegate::admission::{AdmissionReceipt, InFlight};
use tidegate::{Batch, LimitSnapshot, Receipt, StoreError};
use tidegate_core::{Correction, Operation, StoreResponse, Target};

use super::response_summary::{ResponseEnd, ResponseSummary};
use crate::layer::decision::limits::{Charges, RuleCharge, counts_slots, holds_slots};
use crate::layer::decision::rule::ActualCost;
use crate::layer::decision::tiers::CallerKeys;
use crate::layer::settings::Settings;

/// Settlement of one request, pending until its response ends.
pub(crate) struct PendingSettlement {
    charges: Option<OpenCharges>,
    /// Keeps the request counted as pending.
    _in_flight: Option<InFlight>,
    status: Option<StatusCode>,
    bytes: u64,
    /// Length of the content, if known.
    length: Option<u64>,
    /// Whether no content is sent, whatever its length says, as in the response to HEAD.
    bodiless: bool,
}

/// Charges that are still open, and what is needed to settle them.
pub(crate) struct OpenCharges {
    settings: Arc<Settings>,
    by: ChargedBy,
}

/// What the request was charged by.
enum ChargedBy {
    Limits { charges: Charges, receipt: Receipt },
    Admission { caller: CallerKeys, receipt: AdmissionReceipt },
}

/// Correction of each charge.
type Deltas = SmallVec<[i64; 2]>;

/// What to do when the response ends.
struct Corrections {
    deltas: Deltas,
    settle: bool,
    release: bool,
}

impl PendingSettlement {
    pub(crate) fn open(
        charges: Option<OpenCharges>,
        in_flight: Option<InFlight>,
        bodiless: bool,
    ) -> Box<Self> {
        Box::new(Self {
            charges,
            _in_flight: in_flight,
            status: None,
            bytes: 0,
            length: None,
            bodiless,
        })
    }

    /// Records status and content length of the response.
    pub(crate) fn record_response(&mut self, status: StatusCode, length: Option<u64>) {
        self.status = Some(status);
        self.length = length;
        self.bodiless |= status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    }

    /// Counts content that was handed over.
    pub(crate) fn record_sent(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub(crate) fn close(mut self: Box<Self>, end: ResponseEnd) {
        self.settle(end);
    }

    fn settle(&mut self, end: ResponseEnd) {
        if let Some(charges) = self.charges.take() {
            charges.settle(&ResponseSummary { status: self.status, bytes: self.bytes, end });
        }
    }
}

impl Drop for PendingSettlement {
    /// Settles on drop: servers drop a body before its end if they know its length.
    fn drop(&mut self) {
        let whole = self.status.is_some() && (self.bodiless || self.length == Some(self.bytes));
        self.settle(if whole { ResponseEnd::Complete } else { ResponseEnd::Aborted });
    }
}

impl OpenCharges {
    pub(crate) const fn limits(
        settings: Arc<Settings>,
        charges: Charges,
        receipt: Receipt,
    ) -> Self {
        Self { settings, by: ChargedBy::Limits { charges, receipt } }
    }

    pub(crate) const fn admission(
        settings: Arc<Settings>,
        caller: CallerKeys,
        receipt: AdmissionReceipt,
    ) -> Self {
        Self { settings, by: ChargedBy::Admission { caller, receipt } }
    }

    fn settle(self, summary: &ResponseSummary) {
        let (corrections, settings) = (self.corrections(summary), self.settings.clone());
        if !corrections.settle && !corrections.release {
            return;
        }
        let spawned = settings
            .store()
            .is_some_and(|store| store.detach(async move { self.execute(corrections).await }));
        if !spawned {
            settings.log.no_runtime();
        }
    }

    fn corrections(&self, summary: &ResponseSummary) -> Corrections {
        match &self.by {
            ChargedBy::Limits { charges, .. } => {
                let snapshots = self.settings.limits.snapshots(charges);
                let deltas = self.deltas(charges, &snapshots, summary);
                Corrections {
                    settle: any_nonzero(&deltas),
                    release: holds_slots(&snapshots),
                    deltas,
                }
            }
            ChargedBy::Admission { caller, .. } => {
                let tiers = self.settings.tiers.as_ref();
                let actual = self.real_cost(tiers.and_then(|tiers| tiers.settle.as_ref()), summary);
                let delta = actual.map_or(0, |actual| difference(actual, caller.cost));
                Corrections { settle: delta != 0, release: false, deltas: smallvec![delta] }
            }
        }
    }

    /// Returns the difference between actual and charged cost for each charge. The function of the
    /// layer is called once, whatever the number of limits.
    fn deltas(
        &self,
        charges: &[RuleCharge],
        snapshots: &[LimitSnapshot],
        summary: &ResponseSummary,
    ) -> Deltas {
        let limits = &self.settings.limits;
        let mut shared = None;
        let delta = |(charge, snapshot): (&RuleCharge, &LimitSnapshot)| {
            // Slots are released as a whole.
            if counts_slots(snapshot.limit().policy()) {
                return 0;
            }
            let actual = match &limits.rule(charge).settle {
                Some(own) => self.real_cost(Some(own), summary),
                None => *shared.get_or_insert_with(|| self.real_cost(limits.settle(), summary)),
            };
            actual.map_or(0, |actual| difference(actual, charge.cost))
        };
        charges.iter().zip(snapshots).map(delta).collect()
    }

    /// Returns the actual cost of a request, or `None` if there is no function for it or it panics.
    fn real_cost(&self, actual: Option<&ActualCost>, summary: &ResponseSummary) -> Option<u64> {
        let actual = actual?;
        self.settings.log.catch_panic(|| actual(summary))
    }

    /// Settles and releases in one batch. Slots are released even if the settlement fails.
    async fn execute(&self, corrections: Corrections) {
        match &self.by {
            ChargedBy::Limits { charges, receipt } => {
                let snapshots = self.settings.limits.snapshots(charges);
                let list = corrections_for(charges, &snapshots, &corrections.deltas);
                let targets = targets(charges, &snapshots);
                let Some(engine) = self.settings.limits.engine() else { return };
                let (list, targets) = (&list, &targets);
                let settle = Operation::Settle { corrections: list, receipt: Some(receipt) };
                let release = Operation::Release { targets, receipt };
                let operations = [
                    (corrections.settle, settle),
                    (corrections.release || !corrections.settle, release),
                ];
                let wanted = operations.into_iter().filter(|(is_due, _)| *is_due);
                let batch =
                    wanted.map(|(_, operation)| engine.operation::<StoreResponse>(operation));
                let answers = batch.collect::<Batch<'_, _>>().await;
                answers.into_iter().for_each(|answer| self.log_failure(answer.map(drop)));
            }
            ChargedBy::Admission { caller, receipt } => {
                if let (Some(tiers), [delta]) = (&self.settings.tiers, &*corrections.deltas) {
                    self.log_failure(tiers.settle(caller, *delta, receipt).await.map(drop));
                }
            }
        }
    }

    fn log_failure(&self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            self.settings.log.not_settled(self.settings.wall_time(), &error);
        }
    }
}

fn corrections_for<'a>(
    charges: &'a [RuleCharge],
    snapshots: &'a [LimitSnapshot],
    deltas: &[i64],
) -> SmallVec<[Correction<'a>; 2]> {
    let of = |((charge, snapshot), delta): ((&'a RuleCharge, &'a LimitSnapshot), &i64)| {
        Correction { target: snapshot.target(charge.key.as_str()), delta: *delta }
    };
    charges.iter().zip(snapshots).zip(deltas).map(of).collect()
}

fn targets<'a>(
    charges: &'a [RuleCharge],
    snapshots: &'a [LimitSnapshot],
) -> SmallVec<[Target<'a>; 2]> {
    let pairs = charges.iter().zip(snapshots);
    pairs.map(|(charge, snapshot)| snapshot.target(charge.key.as_str())).collect()
}

fn any_nonzero(deltas: &[i64]) -> bool {
    deltas.iter().any(|&delta| delta != 0)
}

fn difference(actual: u64, taken: u64) -> i64 {
    let difference = i128::from(actual) - i128::from(taken);
    let saturated = if difference < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(difference).unwrap_or(saturated)
}
