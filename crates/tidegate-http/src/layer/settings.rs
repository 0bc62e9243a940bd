//! What a layer was told, and what it makes of a decision: pass, or a refusal.
//!
//! The way from a refusal to a response is not here: it depends on the protocol.

use std::sync::Arc;

use http::HeaderValue;
use smallvec::SmallVec;
use tidegate::guard::NotAsked;
use tidegate::{
    Engine, FailureRule, Jitter, Outcome, Retry, Snapshot, StoreError, StoreHandle, WallTime,
};

use super::case::{Answer, Case};
use super::decided::Decided;
use super::limits::{Charged, Limits, holds_slots};
use super::log::LayerLog;
use super::pass::Pass;
use super::policy_line::PolicyLine;
use super::tab::{Owed, Tab};
use super::tiers::Tiers;
use crate::field::{Fields, Report, RetryAfter, Styles};
use crate::head::Head;
use crate::identity::ClientAddress;
use crate::key::Unkeyed;
use crate::problem::Problems;
use crate::refusal::{Cause, Refusal};

/// Requests that are charged nothing.
pub(super) type Exempt = Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>;

/// Whoever wants to hear of refusals.
pub(super) type Listener = Arc<dyn Fn(&Refusal<'_>) + Send + Sync>;

/// Everything that can be said to a layer. Shared by all its services.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(super) limits: Limits,
    /// An admission in place of limits.
    pub(super) tiers: Option<Tiers>,
    pub(super) clients: ClientAddress,
    pub(super) styles: Styles,
    pub(super) problems: Problems,
    pub(super) exempt: Option<Exempt>,
    pub(super) shadow: bool,
    pub(super) expose: bool,
    pub(super) browsers: bool,
    pub(super) jitter: Arc<Jitter>,
    /// How much longer a hint may get.
    pub(super) jitter_percent: u8,
    pub(super) on_refused: Option<Listener>,
    pub(super) log: Arc<LayerLog>,
    pub(super) policies: PolicyLine,
}

/// The settings, shared by all services of a layer.
pub(crate) type Shared = Arc<Settings>;

/// What to do with a request.
pub(super) enum Step {
    /// Nothing is charged.
    Free,
    /// It is charged what its case says.
    Decide,
    /// It cannot be charged.
    Refuse(Unkeyed),
}

/// What limits have decided, besides how each of them stands.
#[derive(Clone, Copy)]
struct Ruling {
    retry: Option<Retry>,
    degraded: Option<FailureRule>,
}

impl Settings {
    /// What is to be decided about a request.
    pub(super) fn first_step(&self, head: &Head<'_>, case: &mut Case) -> Step {
        if self.exempt.as_ref().is_some_and(|exempt| exempt(head)) {
            tracing::debug!("a request is charged nothing, as it was chosen to be");
            return Step::Free;
        }
        if let Some(tiers) = &self.tiers {
            // Whoever is let in by a switch needs no key either.
            if !tiers.admission().is_enabled() {
                return Step::Free;
            }
            return match tiers.asking(head) {
                Ok(asking) => {
                    case.asking = Some(asking);
                    Step::Decide
                }
                Err(unkeyed) => Step::Refuse(unkeyed),
            };
        }
        match self.limits.charges(head, &mut case.charges) {
            Ok(()) if case.charges.is_empty() => Step::Free,
            Ok(()) => Step::Decide,
            Err(unkeyed) => Step::Refuse(unkeyed),
        }
    }

    /// What becomes of a request without a key.
    pub(super) fn unkeyed<R>(
        &self,
        case: &Case,
        unkeyed: Unkeyed,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Pass, R> {
        if unkeyed == Unkeyed::NoPeer {
            self.log.no_peer();
        }
        if self.in_shadow() {
            tracing::info!("a request without a key would be refused");
            return Ok(self.unasked(case));
        }
        Err(refuse(&Refusal::new(Cause::Unkeyed(unkeyed))))
    }

    /// Decides: at the first poll if the store is in process.
    pub(super) async fn decide(&self, case: &Case) -> Answer {
        match (&self.tiers, &case.asking) {
            (Some(tiers), Some(asking)) => tiers.decide(asking).await.into(),
            _ => self.limits.decide(&case.charges).await.into(),
        }
    }

    /// What becomes of a request that was asked about.
    pub(super) fn judge<R>(
        self: &Arc<Self>,
        case: Case,
        answer: Answer,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Pass, R> {
        let decision = match answer {
            Answer::Decided(decision) => decision,
            Answer::Said(said) => return self.admitted(case, said, refuse),
            Answer::Failed(error) => return self.undecided(&case, &error, refuse),
        };
        let snapshots = self.limits.snapshots(&case.charges);
        let pairs = case.charges.iter().zip(&snapshots).zip(decision.outcomes());
        let reports: SmallVec<[Report<'_>; 4]> =
            pairs.map(|((charged, terms), outcome)| self.report(charged, terms, outcome)).collect();
        let ruling = Ruling { retry: decision.retry(), degraded: decision.degraded() };
        let pass = self.ruled(&case, &snapshots, &reports, ruling, refuse);
        let open = self.limits.settles(&case.charges) || holds_slots(&snapshots);
        drop(reports);
        drop(snapshots);
        let mut pass = pass?;
        if let (true, Some(grant)) = (open, decision.granted()) {
            let owed = Owed::charges(self.clone(), case.charges, grant.receipt);
            pass.tab = Some(Tab::open(Some(owed), None, case.bodiless));
        }
        Ok(pass)
    }

    /// The common case: one limit, and nothing to do when the response is over.
    pub(super) fn spent<R>(
        &self,
        case: &Case,
        outcome: &Outcome,
        terms: Snapshot,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Pass, R> {
        let Some(charged) = case.charges.first() else { return Ok(Pass::default()) };
        if outcome.retry.is_none() && !self.tells() {
            return Ok(Pass::default());
        }
        if outcome.retry.is_none() && self.tells_draft_11_alone() {
            if let Some(fields) = self.policies.of_one(charged, &terms, outcome) {
                return Ok(Pass { fields, tab: None, decided: None });
            }
        }
        let terms = [terms];
        let report = self.report(charged, &terms[0], outcome);
        let ruling = Ruling { retry: outcome.retry, degraded: None };
        self.ruled(case, &terms, &[report], ruling, refuse)
    }

    fn report<'t>(&self, charged: &Charged, terms: &'t Snapshot, outcome: &Outcome) -> Report<'t> {
        let report = Report::of(terms.limit(), outcome);
        match self.limits.rule(charged).unit {
            Some(unit) => report.counting(unit),
            None => report,
        }
    }

    /// What goes with a request that limits have decided on; or the refusal.
    fn ruled<R>(
        &self,
        case: &Case,
        snapshots: &[Snapshot],
        reports: &[Report<'_>],
        ruling: Ruling,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Pass, R> {
        let Ruling { retry, degraded } = ruling;
        if retry.is_some() && !self.shadow {
            let cause = match degraded {
                Some(FailureRule::Closed) => Cause::Store,
                _ => Cause::Limit,
            };
            let refusal = Refusal::new(cause).limits(reports).retry(self.hint(retry));
            return Err(refuse(&refusal));
        }
        let fields = if self.shadow {
            self.tell_shadow(reports);
            Fields::default()
        } else {
            let policy = if self.styles.tells_policies() {
                self.policies.of(&case.charges, snapshots, reports)
            } else {
                None
            };
            self.fields_with(reports, policy)
        };
        let decided = (self.expose || self.shadow).then(|| Decided::new(reports, retry, degraded));
        Ok(Pass { fields, tab: None, decided })
    }

    /// The fields that tell of these limits.
    pub(super) fn fields(&self, reports: &[Report<'_>]) -> Fields {
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
        case: &Case,
        error: &StoreError,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Pass, R> {
        self.log.not_decided(self.wall_time(), error);
        if self.in_shadow() {
            return Ok(self.unasked(case));
        }
        let retry = match error {
            StoreError::Unavailable(reason) => match reason.downcast_ref() {
                Some(NotAsked::Down { retry_after }) => Some(Retry::After(*retry_after)),
                _ => None,
            },
            _ => None,
        };
        Err(refuse(&Refusal::new(Cause::Store).retry(self.hint(retry))))
    }

    /// What goes with a request that is let in by a shadow although nothing was decided about it.
    /// It is pending like any other.
    fn unasked(&self, case: &Case) -> Pass {
        let in_flight = self.tiers.as_ref().map(|tiers| tiers.admission().enter());
        let tab = in_flight.map(|in_flight| Tab::open(None, Some(in_flight), case.bodiless));
        Pass { tab, ..Pass::told(Decided::undecided()) }
    }

    /// Whether something is owed when a request is over that was charged like this.
    pub(super) fn owes(&self, case: &Case) -> bool {
        match &self.tiers {
            Some(tiers) => tiers.settle.is_some(),
            None => {
                self.limits.settles(&case.charges)
                    || holds_slots(&self.limits.snapshots(&case.charges))
            }
        }
    }

    /// Whether refusals count for nothing at present.
    pub(super) fn in_shadow(&self) -> bool {
        self.shadow || self.tiers.as_ref().is_some_and(Tiers::in_shadow)
    }

    /// Whether handlers are told of every decision.
    pub(super) fn tells_handlers(&self) -> bool {
        self.expose || self.in_shadow()
    }

    /// Tells of a refusal those who want to hear of it.
    pub(super) fn tell_refused(&self, refusal: &Refusal<'_>) {
        if let Some(listener) = &self.on_refused {
            let _ = self.log.contained(|| listener(refusal));
        }
    }

    /// Whether anybody is told how limits stand that let a request pass.
    fn tells(&self) -> bool {
        self.styles != Styles::NONE || self.expose || self.shadow
    }

    /// Whether the fields of draft 11 are all that goes with a request that passes.
    fn tells_draft_11_alone(&self) -> bool {
        self.styles.is_draft_11() && !self.expose && !self.shadow && !self.browsers
    }

    /// The wall time by the clock of the store.
    pub(super) fn wall_time(&self) -> WallTime {
        self.engine().map_or_else(WallTime::default, Engine::wall_time)
    }

    /// The engine that decides; `None` if there are no limits.
    fn engine(&self) -> Option<&Engine> {
        match &self.tiers {
            Some(tiers) => Some(tiers.admission().engine()),
            None => self.limits.engine(),
        }
    }

    /// The store that decides, if there are limits.
    pub(super) fn store(&self) -> Option<&StoreHandle> {
        self.engine().map(Engine::store)
    }

    /// Whether decisions and settlements are ready at the first poll.
    #[inline]
    pub(super) fn is_local(&self) -> bool {
        self.store().is_none_or(|store| store.local().is_some())
    }

    pub(super) fn hint(&self, retry: Option<Retry>) -> Option<RetryAfter> {
        let exact = RetryAfter::of(retry?)?;
        Some(self.jitter.lengthen(exact.wait(), self.jitter_percent).into())
    }

    fn tell_shadow(&self, reports: &[Report<'_>]) {
        for report in reports.iter().filter(|report| report.retry().is_some()) {
            tracing::info!(limit = report.name(), "a request over the limit is let in: shadow");
        }
    }
}
