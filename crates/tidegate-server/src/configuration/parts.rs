//! The parts of a server that follow the configuration.

use std::sync::Arc;

use tidegate::admission::{Admission, AdmissionError};
use tidegate::{Engine, PolicyChange};
use tidegate_config::{Config, Limits};
use tidegate_gateway::{Gateway, GatewayBuilder, Upstream};

use super::limits::ConfiguredLimits;
use super::provider_stats::stats_source;
use super::providers::{set_provider_labels, upstreams};
use super::{ChangeError, ConfigSnapshot};
use crate::access_log::AccessLog;
use crate::call_observer::CallObserver;
use crate::database::Database;
use crate::events::Events;
use crate::metrics::{AdmissionStats, Metrics};
use crate::tokens::Tokens;

/// The parts of a server that follow the configuration. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) engine: Engine,
    pub(crate) admission: Admission,
    pub(crate) gateway: Gateway,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    access_log: AccessLog,
    pub(crate) database: Option<Database>,
}

impl Parts {
    /// Creates the parts as configured.
    pub(crate) fn new(
        plan: &Config,
        engine: &Engine,
        database: Option<Database>,
    ) -> Result<Self, ChangeError> {
        Self::with_gateway(plan, engine, database, |builder| builder)
    }

    /// Creates the parts as configured, with changes to the gateway that no setting makes.
    pub(crate) fn with_gateway(
        plan: &Config,
        engine: &Engine,
        database: Option<Database>,
        change: impl FnOnce(GatewayBuilder) -> GatewayBuilder,
    ) -> Result<Self, ChangeError> {
        let (metrics, tokens) = (Metrics::default(), Tokens::default());
        tokens.configure(&plan.admin);
        let admission = Admission::new(engine, plan.admission.rules(&plan.limits))?;
        configure(&admission, plan)?;
        let events = Events::default();
        let observer = Arc::new(CallObserver::new(metrics.llm(), events.clone()));
        observer.access_log().configure(&plan.gateway);
        let access_log = observer.access_log().clone();
        let builder = Gateway::builder(engine).observer(observer.clone()).call_observer(observer);
        let builder = builder.trusted_proxies(plan.listen.trusted_proxies.value.clone());
        let builder = builder.max_memory(plan.gateway.max_memory.value.bytes());
        let builder = upstreams(plan)?.into_iter().fold(builder, GatewayBuilder::upstream);
        let gateway = change(builder).build()?;
        metrics.set_providers_source(stats_source(&gateway, metrics.llm()));
        metrics.set_admission_source(admission_stats(&admission));
        set_provider_labels(&metrics, plan);
        let (engine, tokens) = (engine.clone(), Arc::new(tokens));
        Ok(Self { engine, admission, gateway, tokens, events, metrics, access_log, database })
    }

    /// Checks whether the parts can be configured with a plan, without changing anything. Returns
    /// the upstreams of the gateway.
    pub(crate) fn check(plan: &Config) -> Result<Vec<Upstream>, ChangeError> {
        plan.admission.rules(&plan.limits).check()?;
        let upstreams = upstreams(plan)?;
        Gateway::validate(&upstreams)?;
        Ok(upstreams)
    }

    /// Registers the limits of a plan with the engine. Admission must be configured first.
    pub(super) fn register(&self, limits: &Limits) -> Result<ConfiguredLimits, ChangeError> {
        ConfiguredLimits::register(&self.engine, limits, &self.admission, &self.metrics)
    }

    /// Reconfigures all parts with a plan and its upstreams, and returns the limits. On failure,
    /// admission and gateway are restored.
    pub(super) fn reconfigure(
        &self,
        next: Vec<Upstream>,
        plan: &Config,
        before: &ConfigSnapshot,
    ) -> Result<ConfiguredLimits, ChangeError> {
        self.gateway.reconfigure(next)?;
        let configured = configure(&self.admission, plan).map_err(ChangeError::from);
        let limits = match configured.and_then(|()| self.register(&plan.limits)) {
            Ok(limits) => limits,
            Err(error) => {
                self.gateway.reconfigure(upstreams(&before.plan)?)?;
                configure(&self.admission, &before.plan)?;
                return Err(error);
            }
        };
        limits.retire_others(&before.limits, &self.engine, &self.admission);
        self.tokens.configure(&plan.admin);
        self.access_log.configure(&plan.gateway);
        self.gateway.set_max_memory(plan.gateway.max_memory.value.bytes());
        set_provider_labels(&self.metrics, plan);
        Ok(limits)
    }
}

/// Returns a function that reads the number of pending requests, for metrics.
fn admission_stats(admission: &Admission) -> impl Fn() -> AdmissionStats + Send + Sync + 'static {
    let admission = admission.clone();
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    move || AdmissionStats {
        pending: number(admission.pending()),
        threshold: admission.rules().threshold().map(number),
    }
}

/// Configures admission as planned.
fn configure(admission: &Admission, plan: &Config) -> Result<(), AdmissionError> {
    admission.reconfigure(plan.admission.rules(&plan.limits), PolicyChange::KeepTokens)?;
    if plan.admission.enabled.value {
        admission.enable();
    } else {
        admission.disable();
    }
    Ok(())
}
