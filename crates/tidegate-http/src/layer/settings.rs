//! What a layer was told, and what it makes of a decision: pass, or a refusal.
//!
//! The way from a refusal to a response is not here: it depends on the protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use smallvec::SmallVec;
use tidegate::guard::NotAsked;
use tidegate::{Decision, FailureRule, Grant, Outcome, Retry, Snapshot, StoreError, WallTime};

use super::decided::Decided;
use super::limits::{Charged, Charges, Limits};
use super::pass::Pass;
use super::policy_line::PolicyLine;
use super::tab::{Tab, holds_slots};
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
    pub(super) clients: ClientAddress,
    pub(super) styles: Styles,
    pub(super) problems: Problems,
    pub(super) exempt: Option<Exempt>,
    pub(super) shadow: bool,
    pub(super) expose: bool,
    pub(super) browsers: bool,
    pub(super) spread: Option<Spread>,
    pub(super) troubles: Arc<Troubles>,
    policies: PolicyLine,
}

/// The settings, shared by all services of a layer.
pub(crate) type Shared = Arc<Settings>;

/// A request on its way to a decision.
pub(super) struct Case {
    pub(super) charges: Charges,
    /// Its answer has no content.
    pub(super) bodiless: bool,
}

/// What to do with a request.
pub(super) enum Step {
    /// Nothing is charged.
    Free,
    /// It is charged what its case says.
    Decide,
    /// It cannot be charged.
    Refuse(Unkeyed),
}

impl Settings {
    /// What is to be decided about a request.
    pub(super) fn first_step(&self, head: &Head<'_>, case: &mut Case) -> Step {
        if self.exempt.as_ref().is_some_and(|exempt| exempt(head)) {
            tracing::debug!("a request is charged nothing, as it was chosen to be");
            return Step::Free;
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

    /// What becomes of a request that the store has answered about.
    pub(super) fn judge<R>(
        self: &Arc<Self>,
        case: Case,
        answer: Result<Decision, StoreError>,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Pass, R> {
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => return self.undecided(&error, refuse),
        };
        // Most have one limit, and are spared the lists.
        if let ([charged], [outcome]) = (&case.charges[..], decision.outcomes()) {
            let terms = [self.limits.rule(charged).limiter.snapshot()];
            let report = self.report(charged, &terms[0], outcome);
            let verdict = self.verdict(&case, &terms, &[report], &decision, refuse);
            let (pass, open) = verdict?;
            return Ok(if open { self.keep_tab(pass, case, decision) } else { pass });
        }
        let snapshots = self.limits.snapshots(&case.charges);
        let pairs = case.charges.iter().zip(&snapshots).zip(decision.outcomes());
        let reports: SmallVec<[Report<'_>; 4]> =
            pairs.map(|((charged, terms), outcome)| self.report(charged, terms, outcome)).collect();
        let verdict = self.verdict(&case, &snapshots, &reports, &decision, refuse);
        drop(reports);
        drop(snapshots);
        let (pass, open) = verdict?;
        Ok(if open { self.keep_tab(pass, case, decision) } else { pass })
    }

    fn report<'t>(&self, charged: &Charged, terms: &'t Snapshot, outcome: &Outcome) -> Report<'t> {
        let report = Report::of(terms.limit(), outcome);
        match self.limits.rule(charged).unit {
            Some(unit) => report.counting(unit),
            None => report,
        }
    }

    /// What goes with a request, and whether its tab is kept open; or the refusal.
    fn verdict<R>(
        &self,
        case: &Case,
        snapshots: &[Snapshot],
        reports: &[Report<'_>],
        decision: &Decision,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<(Pass, bool), R> {
        let (retry, degraded) = (decision.retry(), decision.degraded());
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
        let open = self.limits.settles(&case.charges) || holds_slots(snapshots);
        Ok((Pass { fields, tab: None, decided }, open))
    }

    /// Opens the tab of a request, with which something is done when its response is over.
    fn keep_tab(self: &Arc<Self>, mut pass: Pass, case: Case, decision: Decision) -> Pass {
        let open =
            |grant: Grant| Tab::open(self.clone(), case.charges, grant.receipt, case.bodiless);
        pass.tab = decision.granted().map(open);
        pass
    }

    /// The fields that tell of these limits.
    pub(super) fn fields(&self, reports: &[Report<'_>]) -> Fields {
        let policy = if self.styles.tells_policies() { Fields::policy(reports) } else { None };
        self.fields_with(reports, policy)
    }

    #[inline]
    fn fields_with(&self, reports: &[Report<'_>], policy: Option<HeaderValue>) -> Fields {
        let wall = if self.styles.needs_wall_time() {
            self.limits.wall_time()
        } else {
            WallTime::default()
        };
        let fields = Fields::with_policy(self.styles, reports, wall, policy);
        if self.browsers { fields.readable(self.styles) } else { fields }
    }

    fn undecided<R>(
        &self,
        error: &StoreError,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Pass, R> {
        self.troubles.not_decided(self.limits.wall_time(), error);
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
