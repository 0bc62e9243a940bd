//! What a layer was told, and what it makes of a decision: pass, or a refusal.
//!
//! The way from a refusal to a response is not here: it depends on the protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use smallvec::SmallVec;
use tidegate::admission::Tier;
use tidegate::guard::NotAsked;
use tidegate::{FailureRule, Outcome, Retry, Snapshot, StoreError, WallTime};

use super::case::{Answer, Case};
use super::decided::Decided;
use super::limits::{Charged, Limits};
use super::pass::Pass;
use super::policy_line::PolicyLine;
use super::tab::{Owed, Tab, holds_slots};
use super::tiers::{Said, Tiers};
use super::troubles::Troubles;
use crate::field::{Fields, Report, RetryAfter, Styles};
use crate::head::Head;
use crate::identity::ClientAddress;
use crate::key::Unkeyed;
use crate::problem::Problems;
use crate::refusal::{Cause, Refusal};

/// Requests that are charged nothing.
pub(super) type Exempt = Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>;

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
    pub(super) spread: Option<Spread>,
    pub(super) troubles: Arc<Troubles>,
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
            case.asking = Some(tiers.asking(head));
            return Step::Decide;
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
        unkeyed: Unkeyed,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Pass, R> {
        if unkeyed == Unkeyed::NoPeer {
            self.troubles.no_peer();
        }
        if self.shadow {
            tracing::info!("a request without a key would be refused");
            return Ok(Pass::default());
        }
        Err(refuse(&Refusal::new(Cause::Unkeyed(unkeyed))))
    }

    /// Decides if the store can do so without being waited for; else nothing has happened.
    #[inline]
    pub(super) fn decide_now(&self, case: &Case) -> Option<Answer> {
        match (&self.tiers, &case.asking) {
            (Some(tiers), Some(asking)) => tiers.decide_now(asking).map(Answer::from),
            _ => self.limits.decide_now(&case.charges),
        }
    }

    /// Decides, waiting for the store.
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
            Answer::Spent(outcome, terms) => return self.spent(&case, &outcome, terms, refuse),
            Answer::Decided(decision) => decision,
            Answer::Said(said) => return self.admitted(case, said, refuse),
            Answer::Failed(error) => return self.undecided(&error, refuse),
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
    fn spent<R>(
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
        let terms = [terms];
        let report = self.report(charged, &terms[0], outcome);
        let ruling = Ruling { retry: outcome.retry, degraded: None };
        self.ruled(case, &terms, &[report], ruling, refuse)
    }

    /// What becomes of a request that an admission has spoken about.
    fn admitted<R>(
        self: &Arc<Self>,
        case: Case,
        said: Said,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Pass, R> {
        let standing = said.standing.iter();
        let reports: SmallVec<[Report<'_>; 2]> =
            standing.map(|(limit, outcome)| Report::of(limit, outcome)).collect();
        if let Some((tier, reason, retry)) = said.rejected {
            let cause = match (tier, said.degraded) {
                (Tier::Backpressure, _) => Cause::BackPressure,
                (_, Some(FailureRule::Closed)) => Cause::Store,
                _ => Cause::Limit,
            };
            let refusal = Refusal::new(cause)
                .limits(&reports)
                .retry(self.hint(Some(retry)))
                .at(tier.as_str(), reason.as_str());
            return Err(refuse(&refusal));
        }
        if let Some((tier, _)) = said.shadowed {
            tracing::info!(level = tier.as_str(), "a request is let in: shadow");
        }
        let fields = self.fields(&reports);
        let retry = said.shadowed.map(|(_, retry)| retry);
        let decided =
            (self.expose || retry.is_some()).then(|| Decided::new(&reports, retry, said.degraded));
        drop(reports);
        let owed = match (case.asking, said.bill) {
            (Some(asking), Some(bill)) => Some(Owed::admission(self.clone(), asking, bill)),
            _ => None,
        };
        let open = owed.is_some() || said.in_flight.is_some();
        let tab = open.then(|| Tab::open(owed, said.in_flight, case.bodiless));
        Ok(Pass { fields, tab, decided })
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
        error: &StoreError,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Pass, R> {
        self.troubles.not_decided(self.wall_time(), error);
        if self.shadow {
            return Ok(Pass::default());
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

    /// Whether anybody is told how limits stand that let a request pass.
    fn tells(&self) -> bool {
        self.styles != Styles::NONE || self.expose || self.shadow
    }

    /// The wall time by the clock of the store.
    pub(super) fn wall_time(&self) -> WallTime {
        match &self.tiers {
            Some(tiers) => tiers.admission().engine().wall_time(),
            None => self.limits.wall_time(),
        }
    }

    fn hint(&self, retry: Option<Retry>) -> Option<RetryAfter> {
        let exact = RetryAfter::of(retry?)?;
        Some(self.spread.as_ref().map_or(exact, |spread| spread.apply(exact)))
    }

    fn tell_shadow(&self, reports: &[Report<'_>]) {
        for report in reports.iter().filter(|report| report.retry().is_some()) {
            tracing::info!(limit = report.name(), "a request over the limit is let in: shadow");
        }
    }
}

/// Hints made longer, each by another part, so that those who were refused together do not come
/// back together.
#[derive(Clone)]
pub(super) struct Spread {
    percent: u8,
    turn: Arc<AtomicU64>,
}

impl Spread {
    pub(super) fn new(percent: u8) -> Self {
        Self { percent: percent.min(100), turn: Arc::default() }
    }

    fn apply(&self, hint: RetryAfter) -> RetryAfter {
        // Multiples of the golden ratio, modulo one, fill an interval evenly from the start: no
        // chance is needed.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let part = self.turn.fetch_add(GOLDEN, Ordering::Relaxed) >> 48;
        let parts = part * u64::from(self.percent) / 100;
        hint.lengthened(u16::try_from(parts).unwrap_or(u16::MAX))
    }
}
