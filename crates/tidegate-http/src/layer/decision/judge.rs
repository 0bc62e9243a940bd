//! Turns a decision into an admitted request or a refusal.
//!
//! Rendering a refusal as a response depends on the protocol and is done elsewhere. Decisions of an
//! admission are judged in `judge_admission`.

use std::sync::Arc;

use http::HeaderValue;
use smallvec::SmallVec;
use tidegate::guard::NotAsked;
use tidegate::{FailureRule, Outcome, Retry, Snapshot, StoreError};
use tidegate_core::WallTime;

use super::decided::Decided;
use super::limits::{Charged, holds_slots};
use super::pending_decision::{Answer, PendingDecision};
use crate::field::{Fields, Report, RetryAfter, Styles};
use crate::key::Unkeyed;
use crate::layer::response::admitted::Admitted;
use crate::layer::response::pending_settlement::{OpenCharges, PendingSettlement};
use crate::layer::settings::Settings;
use crate::refusal::{Refusal, RefusalCause};

/// Result of a list of charges, apart from the state of each limit.
#[derive(Clone, Copy)]
struct Ruling {
    retry: Option<Retry>,
    degraded: Option<FailureRule>,
}

impl Settings {
    /// Judges a request without a key.
    pub(crate) fn unkeyed<R>(
        &self,
        pending: &PendingDecision,
        unkeyed: Unkeyed,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        if unkeyed == Unkeyed::NoPeer {
            self.log.no_peer();
        }
        if self.in_shadow() {
            tracing::info!("a request without a key would be refused");
            return Ok(self.unasked(pending));
        }
        Err(refuse(&Refusal::new(RefusalCause::Unkeyed(unkeyed))))
    }

    /// Judges a request that was decided.
    pub(crate) fn judge<R>(
        self: &Arc<Self>,
        pending: PendingDecision,
        answer: Answer,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        let decision = match answer {
            Answer::Decided(decision) => decision,
            Answer::Spent(outcome, terms) => return self.spent(&pending, &outcome, terms, refuse),
            Answer::Said(said) => return self.judge_admission(pending, said, refuse),
            Answer::Failed(error) => return self.undecided(&pending, &error, refuse),
        };
        let snapshots = self.limits.snapshots(&pending.charges);
        let pairs = pending.charges.iter().zip(&snapshots).zip(decision.outcomes());
        let reports: SmallVec<[Report<'_>; 4]> =
            pairs.map(|((charged, terms), outcome)| self.report(charged, terms, outcome)).collect();
        let ruling = Ruling { retry: decision.retry(), degraded: decision.degraded() };
        let admitted = self.ruled(&pending, &snapshots, &reports, ruling, refuse);
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
    fn spent<R>(
        &self,
        pending: &PendingDecision,
        outcome: &Outcome,
        terms: Snapshot,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        let Some(charged) = pending.charges.first() else { return Ok(Admitted::default()) };
        if outcome.retry.is_none() && !self.tells() {
            return Ok(Admitted::default());
        }
        if outcome.retry.is_none() && self.tells_draft_11_alone() {
            if let Some(fields) = self.policies.of_one(charged, &terms, outcome) {
                return Ok(Admitted { fields, settlement: None, decided: None });
            }
        }
        let terms = [terms];
        let report = self.report(charged, &terms[0], outcome);
        let ruling = Ruling { retry: outcome.retry, degraded: None };
        self.ruled(pending, &terms, &[report], ruling, refuse)
    }

    fn report<'t>(&self, charged: &Charged, terms: &'t Snapshot, outcome: &Outcome) -> Report<'t> {
        let report = Report::of(terms.limit(), outcome);
        match self.limits.rule(charged).unit {
            Some(unit) => report.counting(unit),
            None => report,
        }
    }

    /// Builds the admitted request, or the refusal.
    fn ruled<R>(
        &self,
        pending: &PendingDecision,
        snapshots: &[Snapshot],
        reports: &[Report<'_>],
        ruling: Ruling,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        let Ruling { retry, degraded } = ruling;
        if retry.is_some() && !self.shadow {
            let cause = match degraded {
                Some(FailureRule::Closed) => RefusalCause::Store,
                _ => RefusalCause::Limit,
            };
            let refusal = Refusal::new(cause).limits(reports).retry(self.hint(retry));
            return Err(refuse(&refusal));
        }
        let fields = if self.shadow {
            self.tell_shadow(reports);
            Fields::default()
        } else {
            let policy = if self.styles.tells_policies() {
                self.policies.of(&pending.charges, snapshots, reports)
            } else {
                None
            };
            self.fields_with(reports, policy)
        };
        let decided = (self.expose || self.shadow).then(|| Decided::new(reports, retry, degraded));
        Ok(Admitted { fields, settlement: None, decided })
    }

    /// Builds the header fields for these limits.
    pub(crate) fn fields(&self, reports: &[Report<'_>]) -> Fields {
        let policy = if self.styles.tells_policies() { Fields::policy(reports) } else { None };
        self.fields_with(reports, policy)
    }

    #[inline]
    fn fields_with(&self, reports: &[Report<'_>], policy: Option<HeaderValue>) -> Fields {
        let wall =
            if self.styles.needs_wall_time() { self.wall_time() } else { WallTime::default() };
        let fields = Fields::with_policy(self.styles, reports, wall, policy);
        if self.browsers { fields.readable(self.styles) } else { fields }
    }

    fn undecided<R>(
        &self,
        pending: &PendingDecision,
        error: &StoreError,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        self.log.not_decided(self.wall_time(), error);
        if self.in_shadow() {
            return Ok(self.unasked(pending));
        }
        let retry = match error {
            StoreError::Unavailable(reason) => match reason.downcast_ref() {
                Some(NotAsked::Down { retry_after }) => Some(Retry::After(*retry_after)),
                _ => None,
            },
            _ => None,
        };
        Err(refuse(&Refusal::new(RefusalCause::Store).retry(self.hint(retry))))
    }

    /// Admits a request in shadow mode without a decision. It counts as pending like any other.
    fn unasked(&self, pending: &PendingDecision) -> Admitted {
        let in_flight = self.tiers.as_ref().map(|tiers| tiers.admission().enter());
        let settlement = in_flight
            .map(|in_flight| PendingSettlement::open(None, Some(in_flight), pending.bodiless));
        Admitted { settlement, ..Admitted::told(Decided::undecided()) }
    }

    /// Returns whether anything reports the limits of an admitted request.
    fn tells(&self) -> bool {
        self.styles != Styles::NONE || self.expose || self.shadow
    }

    /// Returns whether the fields of draft 11 are the only report on an admitted request.
    fn tells_draft_11_alone(&self) -> bool {
        self.styles.is_draft_11() && !self.expose && !self.shadow && !self.browsers
    }

    pub(crate) fn hint(&self, retry: Option<Retry>) -> Option<RetryAfter> {
        let exact = RetryAfter::of(retry?)?;
        Some(self.jitter.lengthen(exact.wait(), self.jitter_percent).into())
    }

    fn tell_shadow(&self, reports: &[Report<'_>]) {
        for report in reports.iter().filter(|report| report.retry().is_some()) {
            tracing::info!(limit = report.name(), "a request over the limit is let in: shadow");
        }
    }
}
