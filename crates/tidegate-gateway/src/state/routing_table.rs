//! The routing table: one route for each configured provider. A new table is complete before it
//! replaces the old one.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use tidegate::Engine;
use tidegate::pacer::SlotPool;
use tidegate_llm::fallback::{self, MAX_TARGETS};
use tidegate_llm::memory::MemoryBudget;
use tidegate_llm::rate_limit::{AccountError, AccountGroup};
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::telemetry::{Observer, tracing_observer};
use tidegate_providers::classify::Rules;
use tidegate_providers::request::key_field;
use tidegate_providers::{Credential, Dialect, Provider};

use crate::error::GatewayError;
use crate::request::caller_key::{CallerKey, KeyError};
use crate::state::accounts::{AccountConfig, AccountEntry, AccountParams, Accounts, Engines};
use crate::state::provider_state::ProviderState;
use crate::upstream::attempt::UpstreamClient;
use crate::upstream::http_service::HttpService;
use crate::upstream::redaction::KeyRedactor;
use crate::upstream::settings::Upstream;
use crate::upstream::stack::{Chain, Stack, fallback};

/// What every routing table shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engines: Engines,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) http: HttpService,
    /// What accounts, queues and models of all providers may take of memory.
    pub(crate) memory: MemoryBudget,
}

/// The routes by the names of providers.
#[derive(Default)]
pub(crate) struct RoutingTable {
    generation: u64,
    routes: HashMap<String, Arc<Route>>,
}

/// A provider under one configuration.
pub(crate) struct Route {
    pub(crate) upstream: Upstream,
    pub(crate) client: Arc<UpstreamClient>,
    pub(crate) provider_state: Arc<ProviderState>,
    /// The account of our own key, if there is one.
    pub(crate) own: Option<Arc<AccountEntry>>,
    generation: u64,
    retry: RetryLayer,
    chain: Option<Chain>,
}

/// A route before any state is changed for it.
struct RoutePlan {
    upstream: Upstream,
    client: Arc<UpstreamClient>,
    provider_state: Arc<ProviderState>,
    /// Fallbacks, by their index among all upstreams.
    targets: Vec<usize>,
}

impl RoutingTable {
    /// The route of a provider, by its name as it stands in a path.
    pub(crate) fn route(&self, name: &str) -> Option<&Arc<Route>> {
        self.routes.get(name)
    }

    /// The names of all providers, in their order.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.routes.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.values()
    }

    /// The table after a change of the configuration. Providers that stay keep their state; their
    /// limits change after everything else was checked.
    pub(crate) fn reconfigured(
        &self,
        upstreams: Vec<Upstream>,
        shared: &Shared,
    ) -> Result<Self, GatewayError> {
        check(&upstreams)?;
        let chains = upstreams.iter().map(|upstream| targets(upstream, &upstreams));
        let chains: Vec<_> = chains.collect();
        let mut plans = Vec::new();
        for (upstream, targets) in upstreams.into_iter().zip(chains) {
            let (client, provider_state) =
                (upstream_client(&upstream, shared)?, self.state_of(&upstream, shared)?);
            plans.push(RoutePlan { upstream, client, provider_state, targets });
        }
        self.reconfigure(&plans)?;
        self.complete(&plans, shared).inspect_err(|_| self.restore(&plans))
    }

    /// The new routes, after the limits were changed.
    fn complete(&self, plans: &[RoutePlan], shared: &Shared) -> Result<Self, GatewayError> {
        let mut owns = Vec::new();
        for RoutePlan { upstream, provider_state, .. } in plans {
            owns.push(provider_state.accounts().own().map_err(|source| limits(upstream, source))?);
        }
        let generation = self.generation + 1;
        let mut routes = HashMap::new();
        for (plan, own) in plans.iter().zip(&owns) {
            let route = match self.unchanged(plan, plans).filter(|route| route.is_of(own)) {
                Some(route) => route.clone(),
                None => Arc::new(Route {
                    chain: chain(plan, plans, &owns)?,
                    retry: retry(&plan.upstream, shared),
                    own: plan.upstream.credential.is_some().then(|| own.clone()),
                    upstream: plan.upstream.clone(),
                    client: plan.client.clone(),
                    provider_state: plan.provider_state.clone(),
                    generation,
                }),
            };
            routes.insert(plan.upstream.name.as_str().to_owned(), route);
        }
        plans.iter().for_each(|plan| self.follow_breaker(plan));
        Ok(Self { generation, routes })
    }

    /// Applies the settings of the breaker. What is known of a provider says nothing about another
    /// address.
    fn follow_breaker(&self, plan: &RoutePlan) {
        let breaker = plan.provider_state.breaker();
        breaker.configure(plan.upstream.breaker);
        let known = self.routes.get(plan.upstream.name.as_str());
        if known.is_some_and(|known| known.upstream.base.address != plan.upstream.base.address) {
            breaker.reset();
        }
    }

    /// The existing route, if neither it nor its fallbacks have changed.
    fn unchanged(&self, plan: &RoutePlan, plans: &[RoutePlan]) -> Option<&Arc<Route>> {
        let stays = |plan: &RoutePlan| {
            let known = self.routes.get(plan.upstream.name.as_str());
            known.filter(|route| route.upstream == plan.upstream)
        };
        let others = plan.upstream.fallback.iter();
        let mut others =
            others.filter_map(|name| plans.iter().find(|other| other.upstream.name == *name));
        stays(plan).filter(|_| others.all(|other| stays(other).is_some()))
    }

    /// The state of a provider: the existing one, unless its dialect has changed.
    fn state_of(
        &self,
        upstream: &Upstream,
        shared: &Shared,
    ) -> Result<Arc<ProviderState>, GatewayError> {
        let known = self.routes.get(upstream.name.as_str());
        if let Some(route) = known.filter(|route| route.upstream.dialect == upstream.dialect) {
            return Ok(route.provider_state.clone());
        }
        let provider_state = ProviderState::new(upstream, shared);
        let provider_state = provider_state.map_err(|source| limits(upstream, source))?;
        let provider_state = Arc::new(provider_state);
        shared.memory.register(&provider_state, |state, most| state.accounts().reclaim(most));
        Ok(provider_state)
    }

    /// Applies the new limits to all providers, or to none.
    fn reconfigure(&self, plans: &[RoutePlan]) -> Result<(), GatewayError> {
        for (done, RoutePlan { upstream, provider_state, .. }) in plans.iter().enumerate() {
            if let Err(source) = provider_state.reconfigure(upstream) {
                self.restore(plans.get(..done).unwrap_or_default());
                return Err(limits(upstream, source));
            }
        }
        Ok(())
    }

    /// Restores the previous limits.
    fn restore(&self, plans: &[RoutePlan]) {
        for plan in plans {
            let Some(before) = self.routes.get(plan.upstream.name.as_str()) else { continue };
            if let Err(error) = before.provider_state.reconfigure(&before.upstream) {
                tracing::error!(%error, "rollback failed: accounts run with mixed limits");
            }
        }
    }
}

impl Route {
    /// Whether this is the account of our own key, if there is one.
    fn is_of(&self, own: &Arc<AccountEntry>) -> bool {
        self.own.as_ref().is_none_or(|known| Arc::ptr_eq(known, own))
    }

    /// The stack of an account under this configuration.
    pub(crate) fn stack(&self, entry: &AccountEntry) -> Arc<(u64, Stack)> {
        entry.stack(self.generation, |account| Stack {
            account: account.clone(),
            breaker: self.provider_state.breaker().clone(),
            client: self.client.clone(),
            // Each account has its own retry budget, across all configurations.
            retry: self.retry.clone().account(&entry.account),
            chain: self.chain.clone(),
        })
    }

    /// The key of a caller, and the path and query that are sent. Where the key decides about the
    /// account, no other one is sent.
    pub(crate) fn caller_key(
        &self,
        headers: &mut HeaderMap,
        target: &Arc<str>,
    ) -> Result<(Credential, Arc<str>), KeyError> {
        let read = CallerKey::read(self.dialect(), headers, target);
        if self.own.is_some() || self.dialect().is_keyless() {
            let credential = read.map_or_else(|_| Credential::none(), |key| key.credential);
            return Ok((credential, target.clone()));
        }
        let key = read?;
        let target = key.keep_alone(headers, target);
        Ok((key.credential, target))
    }

    /// The name of a model in metrics, if it has one.
    pub(crate) fn label(&self, model: Option<&str>) -> Option<Arc<str>> {
        let model = model?;
        self.upstream.models.iter().find(|name| name.eq_ignore_ascii_case(model)).cloned()
    }

    pub(crate) const fn dialect(&self) -> Dialect {
        self.upstream.dialect
    }
}

/// Validates upstreams without changing anything.
pub(crate) fn check(upstreams: &[Upstream]) -> Result<(), GatewayError> {
    for (index, upstream) in upstreams.iter().enumerate() {
        let name = || upstream.name.as_str().to_owned();
        if upstreams.iter().take(index).any(|other| other.name == upstream.name) {
            return Err(GatewayError::Twice(name()));
        }
        for target in &upstream.fallback {
            if !upstreams.iter().any(|other| other.name == *target) {
                let target = target.as_str().to_owned();
                return Err(GatewayError::Fallback { name: name(), target });
            }
        }
        let targets =
            named(upstream, upstreams).filter(|(_, other)| unsuitable(upstream, other).is_none());
        if targets.count() > MAX_TARGETS {
            return Err(too_many(upstream));
        }
        // Limits that an engine of their own can keep can be kept.
        let engines = Engines::new(Engine::new());
        let pool = SlotPool::new(engines.own(), upstream.concurrency);
        let params = AccountParams {
            upstream: upstream.clone(),
            engines,
            observer: tracing_observer(),
            pool,
            group: AccountGroup::new(),
            memory: MemoryBudget::unlimited(),
        };
        let accounts = Accounts::new(params, AccountConfig::of(upstream));
        accounts.map_err(|source| limits(upstream, source))?;
    }
    Ok(())
}

fn upstream_client(
    upstream: &Upstream,
    shared: &Shared,
) -> Result<Arc<UpstreamClient>, GatewayError> {
    let name = || upstream.name.as_str().to_owned();
    let key = upstream.credential.as_ref().and_then(|credential| credential.reveal());
    let redactor = key.and_then(KeyRedactor::new).map(Arc::new);
    let key = key_field(upstream.dialect, key);
    let key = key.map_err(|source| GatewayError::Target { name: name(), source })?;
    let field = |text: &str| HeaderValue::from_str(text).map_err(|_| GatewayError::Name(name()));
    Ok(Arc::new(UpstreamClient {
        label: field(upstream.name.as_str())?,
        host: field(upstream.base.authority().as_str())?,
        provider: upstream.name.clone(),
        dialect: upstream.dialect,
        base: upstream.base.clone(),
        asks_for_usage: upstream.ask_for_usage && upstream.dialect != Dialect::Mistral,
        key,
        redactor,
        rules: match &upstream.retry_statuses {
            Some(statuses) => Rules::new().retry_statuses(statuses.iter().copied()),
            None => Rules::new(),
        },
        http: shared.http.clone(),
    }))
}

fn retry(upstream: &Upstream, shared: &Shared) -> RetryLayer {
    let layer = RetryLayer::new(upstream.name.clone())
        .max_retries(upstream.max_retries)
        .base(upstream.retry_base)
        .bounded_log()
        .observer(shared.observer.clone());
    layer.log_configured();
    layer
}

/// The suitable fallbacks of an upstream, by their index among all.
fn targets(upstream: &Upstream, all: &[Upstream]) -> Vec<usize> {
    let mut targets = Vec::new();
    for (index, other) in named(upstream, all) {
        match unsuitable(upstream, other) {
            None if other.name != upstream.name => targets.push(index),
            None => {}
            Some(why) => {
                tracing::warn!("No fallback from {} to {}: {why}", upstream.name, other.name);
            }
        }
    }
    targets
}

/// The fallbacks that an upstream names, in its order.
fn named<'u>(
    upstream: &'u Upstream,
    all: &'u [Upstream],
) -> impl Iterator<Item = (usize, &'u Upstream)> {
    let place = |name: &Provider| all.iter().enumerate().find(|(_, other)| other.name == *name);
    upstream.fallback.iter().filter_map(place)
}

/// Why calls never fall back from one provider to another, if they do not.
fn unsuitable(upstream: &Upstream, other: &Upstream) -> Option<&'static str> {
    fallback::unsuitable(upstream.dialect, other.dialect, other.credential.is_some())
}

/// The chain of fallbacks, with the limits of their own keys.
fn chain(
    plan: &RoutePlan,
    plans: &[RoutePlan],
    owns: &[Arc<AccountEntry>],
) -> Result<Option<Chain>, GatewayError> {
    let targets = plan.targets.iter().filter_map(|index| {
        let (other, own) = (plans.get(*index)?, owns.get(*index)?);
        let models = plan.upstream.fallback_models.get(&other.upstream.name);
        let models = models.cloned().unwrap_or_default();
        Some(fallback(own, &other.client, other.provider_state.breaker(), models))
    });
    let targets: Vec<_> = targets.collect();
    if targets.is_empty() {
        return Ok(None);
    }
    let chain = Chain::from_fns(plan.upstream.name.clone(), targets);
    chain.map(Some).map_err(|_| too_many(&plan.upstream))
}

fn too_many(upstream: &Upstream) -> GatewayError {
    GatewayError::TooManyFallbacks(upstream.name.as_str().to_owned())
}

fn limits(upstream: &Upstream, source: AccountError) -> GatewayError {
    GatewayError::Limits { name: upstream.name.as_str().to_owned(), source }
}
