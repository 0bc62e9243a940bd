//! Turns a decision into an admitted request or a refusal.
//!
//! Rendering a refusal as a response depends on the protocol and is done elsewhere. Decisions of an
//! admission are judged in `judge_admission`.

use std::sync::Arc;

use http::HeaderValue;
use smallvec::SmallVec;
use tidegate::guard::NotCalled;
use tidegate::{FailureRule, LimitSnapshot, Outcome, Retry, StoreError};
use tidegate_core::WallTime;

use super::limits::{RuleCharge, holds_slots};
use super::pending_decision::{PendingDecision, StoreDecision};
use super::request_decision::RequestDecision;
use crate::field::{Fields, Report, RetryAfter, Styles};
use crate::key::MissingKeyError;
use crate::layer::response::admitted::Admitted;
use crate::layer::response::pending_settlement::{OpenCharges, PendingSettlement};
use crate::layer::settings::Settings;
use crate::refusal::{Refusal, RefusalCause};

/// Result of a list of charges, apart from the state of each limit.
#[derive(Clone, Copy)]
struct ListResult {
    retry: Option<Retry>,
    degraded: Option<FailureRule>,
}

impl Settings {
    /// Judges a request without a key.
    pub(crate) fn judge_unkeyed<R>(
        &self,
        pending: &PendingDecision,
        error: MissingKeyError,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        if error == MissingKeyError::NoPeer {
            self.log.no_peer();
        }
        if self.in_shadow() {
            tracing::info!("request without a key admitted in shadow mode");
            return Ok(self.admit_undecided(pending));
        }
        Err(refuse(&Refusal::new(RefusalCause::MissingKey(error))))
    }

    /// Judges a request that was decided.
    pub(crate) fn judge<R>(
        self: &Arc<Self>,
        pending: PendingDecision,
        decision: StoreDecision,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        let decision = match decision {
            StoreDecision::List(decision) => decision,
            StoreDecision::FastPath(outcome, snapshot) => {
                return self.judge_fast_path(&pending, &outcome, snapshot, refuse);
            }
            StoreDecision::Admission(decision) => {
                return self.judge_admission(pending, decision, refuse);
            }
            StoreDecision::Failed(error) => return self.judge_failure(&pending, &error, refuse),
        };
        let snapshots = self.limits.snapshots(&pending.charges);
        let pairs = pending.charges.iter().zip(&snapshots).zip(decision.outcomes());
        let reports: SmallVec<[Report<'_>; 4]> = pairs
            .map(|((charge, snapshot), outcome)| self.report(charge, snapshot, outcome))
            .collect();
        let result = ListResult { retry: decision.retry(), degraded: decision.degraded() };
        let admitted = self.admit_or_refuse(&pending, &snapshots, &reports, result, refuse);
        let open = self.limits.settles(&pending.charges) || holds_slots(&snapshots);
        drop(reports);
        drop(snapshots);
        let mut admitted = admitted?;
        if let (true, Some(grant)) = (open, decision.granted()) {
            let open_charges = OpenCharges::limits(self.clone(), pending.charges, grant.receipt);
            admitted.settlement =
                Some(PendingSettlement::open(Some(open_charges), None, pending.bodiless));
        }
        Ok(admitted)
    }

    /// Judges the fast path: one limit, and nothing to do when the response ends.
    fn judge_fast_path<R>(
        &self,
        pending: &PendingDecision,
        outcome: &Outcome,
        snapshot: LimitSnapshot,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        let Some(charge) = pending.charges.first() else { return Ok(Admitted::default()) };
        if outcome.retry.is_none() && !self.reports_limits() {
            return Ok(Admitted::default());
        }
        if outcome.retry.is_none() && self.reports_only_draft_11() {
            if let Some(fields) = self.policy_cache.fields_for_one_limit(charge, &snapshot, outcome)
            {
                return Ok(Admitted { fields, settlement: None, decided: None });
            }
        }
        let snapshots = [snapshot];
        let report = self.report(charge, &snapshots[0], outcome);
        let result = ListResult { retry: outcome.retry, degraded: None };
        self.admit_or_refuse(pending, &snapshots, &[report], result, refuse)
    }

    fn report<'t>(
        &self,
        charge: &RuleCharge,
        snapshot: &'t LimitSnapshot,
        outcome: &Outcome,
    ) -> Report<'t> {
        let report = Report::of(snapshot.limit(), outcome);
        match self.limits.rule(charge).unit {
            Some(unit) => report.with_unit(unit),
            None => report,
        }
    }

    /// Builds the admitted request, or the refusal.
    fn admit_or_refuse<R>(
        &self,
        pending: &PendingDecision,
        snapshots: &[LimitSnapshot],
        reports: &[Report<'_>],
        result: ListResult,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        let ListResult { retry, degraded } = result;
        if retry.is_some() && !self.shadow {
            let cause = match degraded {
                Some(FailureRule::Closed) => RefusalCause::Store,
                _ => RefusalCause::Limit,
            };
            let refusal = Refusal::new(cause).limits(reports).retry(self.retry_hint(retry));
            return Err(refuse(&refusal));
        }
        let fields = if self.shadow {
            self.log_shadow(reports);
            Fields::default()
        } else {
            let policy = if self.styles.has_draft_11() {
                self.policy_cache.value(&pending.charges, snapshots, reports)
            } else {
                None
            };
            self.fields_with(reports, policy)
        };
        let decided =
            (self.expose || self.shadow).then(|| RequestDecision::new(reports, retry, degraded));
        Ok(Admitted { fields, settlement: None, decided })
    }

    /// Builds the header fields for these limits.
    pub(crate) fn fields(&self, reports: &[Report<'_>]) -> Fields {
        let policy = if self.styles.has_draft_11() { Fields::policy(reports) } else { None };
        self.fields_with(reports, policy)
    }

    #[inline]
    fn fields_with(&self, reports: &[Report<'_>], policy: Option<HeaderValue>) -> Fields {
        let wall =
            if self.styles.needs_wall_time() { self.wall_time() } else { WallTime::default() };
        let fields = Fields::with_policy(self.styles, reports, wall, policy);
        if self.expose_headers { fields.expose_to_browsers(self.styles) } else { fields }
    }

    fn judge_failure<R>(
        &self,
        pending: &PendingDecision,
        error: &StoreError,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        self.log.not_decided(self.wall_time(), error);
        if self.in_shadow() {
            return Ok(self.admit_undecided(pending));
        }
        let retry = match error {
            StoreError::Unavailable(reason) => match reason.downcast_ref() {
                Some(NotCalled::Down { retry_after }) => Some(Retry::After(*retry_after)),
                _ => None,
            },
            _ => None,
        };
        Err(refuse(&Refusal::new(RefusalCause::Store).retry(self.retry_hint(retry))))
    }

    /// Admits a request in shadow mode without a decision. It counts as pending like any other.
    fn admit_undecided(&self, pending: &PendingDecision) -> Admitted {
        let in_flight = self.tiers.as_ref().map(|tiers| tiers.admission().track_request());
        let settlement = in_flight
            .map(|in_flight| PendingSettlement::open(None, Some(in_flight), pending.bodiless));
        Admitted { settlement, ..Admitted::with_decision(RequestDecision::undecided()) }
    }

    /// Returns whether anything reports the limits of an admitted request.
    fn reports_limits(&self) -> bool {
        self.styles != Styles::NONE || self.expose || self.shadow
    }

    /// Returns whether the fields of draft 11 are the only report on an admitted request.
    fn reports_only_draft_11(&self) -> bool {
        self.styles.is_draft_11_only() && !self.expose && !self.shadow && !self.expose_headers
    }

    pub(crate) fn retry_hint(&self, retry: Option<Retry>) -> Option<RetryAfter> {
        let exact = RetryAfter::of(retry?)?;
        Some(self.jitter.lengthen(exact.wait(), self.jitter_percent).into())
    }

    fn log_shadow(&self, reports: &[Report<'_>]) {
        for report in reports.iter().filter(|report| report.retry().is_some()) {
            tracing::info!(limit = report.name(), "request over the limit admitted in shadow mode");
        }
    }
}
