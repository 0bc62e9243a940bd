//! The parts of a server that follow the configuration.

use std::sync::Arc;

use tidegate::admission::{Admission, AdmissionError, Tier};
use tidegate::{Change, Engine};
use tidegate_config::Plan;
use tidegate_gateway::{Gateway, GatewayBuilder, Upstream};

use super::ChangeError;
use super::providers::{figures, follow_providers, upstreams};
use crate::call_observer::CallObserver;
use crate::database::Database;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::tokens::Tokens;

/// The parts of a server that follow the configuration. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) admission: Admission,
    pub(crate) gateway: Gateway,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    pub(crate) database: Option<Database>,
}

impl Parts {
    /// The parts as a plan says.
    pub(crate) fn new(
        plan: &Plan,
        engine: &Engine,
        database: Option<Database>,
    ) -> Result<Self, ChangeError> {
        let (metrics, tokens) = (Metrics::default(), Tokens::default());
        tokens.follow(&plan.admin);
        let admission = Admission::new(engine, plan.admission.rules(&plan.limits))?;
        configure(&admission, plan)?;
        for tier in plan.admission.unusable_tiers(&plan.limits) {
            tracing::warn!(limit = tier, "no tier of admission: it takes a token bucket");
        }
        let events = Events::default();
        let observer = Arc::new(CallObserver::new(metrics.llm(), events.clone()));
        let builder = Gateway::builder(engine).observer(observer.clone()).call_observer(observer);
        let gateway = upstreams(plan)?.into_iter().fold(builder, GatewayBuilder::upstream);
        let gateway = gateway.build()?;
        metrics.ask_providers(figures(&gateway));
        follow_providers(&metrics, plan);
        Ok(Self { admission, gateway, tokens: Arc::new(tokens), events, metrics, database })
    }

    /// Whether parts could follow a plan, without anything being changed; the upstreams that the
    /// gateway would follow.
    pub(crate) fn check(plan: &Plan) -> Result<Vec<Upstream>, ChangeError> {
        plan.admission.rules(&plan.limits).check()?;
        let upstreams = upstreams(plan)?;
        Gateway::check(&upstreams)?;
        Ok(upstreams)
    }

    /// Follows a plan and its upstreams in the place of another plan; if that fails, everything is
    /// as it was.
    pub(super) fn follow(
        &self,
        next: Vec<Upstream>,
        plan: &Plan,
        before: &Plan,
    ) -> Result<(), ChangeError> {
        self.gateway.reconfigure(next)?;
        if let Err(error) = configure(&self.admission, plan) {
            self.gateway.reconfigure(upstreams(before)?)?;
            return Err(error.into());
        }
        self.tokens.follow(&plan.admin);
        follow_providers(&self.metrics, plan);
        Ok(())
    }
}

/// Brings admission under a plan, with the failure rules of the limits that are its tiers.
fn configure(admission: &Admission, plan: &Plan) -> Result<(), AdmissionError> {
    admission.reconfigure(plan.admission.rules(&plan.limits), Change::KeepTokens)?;
    for tier in [Tier::Client, Tier::Organization] {
        let limit = plan.limits.by_name.get(tier.as_str());
        if let (Some(limiter), Some(limit)) = (admission.limiter(tier), limit) {
            limiter.set_failure_rule(limit.limit.failure_rule());
        }
    }
    if plan.admission.enabled.value {
        admission.enable();
    } else {
        admission.disable();
    }
    Ok(())
}
