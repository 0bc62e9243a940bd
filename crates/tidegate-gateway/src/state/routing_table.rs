//! The routing table: one route per configured provider. A new table is complete before it replaces
//! the old one.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use tidegate::pacer::SlotPool;
use tidegate::{Engine, LimitError};
use tidegate_llm::fallback::{self, MAX_TARGETS};
use tidegate_llm::memory::MemoryBudget;
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::telemetry::{Observer, tracing_observer};
use tidegate_providers::classify::ClassificationRules;
use tidegate_providers::request::credential_header;
use tidegate_providers::{Credential, Dialect, Provider};

use crate::error::GatewayError;
use crate::request::caller_key::{CallerKey, KeyError};
use crate::state::accounts::{AccountConfig, AccountEntry, AccountParams, Accounts, Engines};
use crate::state::provider_state::ProviderState;
use crate::upstream::attempt::UpstreamClient;
use crate::upstream::http_service::HttpService;
use crate::upstream::redaction::KeyRedactor;
use crate::upstream::settings::Upstream;
use crate::upstream::stack::{Chain, Stack, fallback_target};

/// What all routing tables of a gateway share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engines: Engines,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) http: HttpService,
    /// Memory budget of accounts, queues and models of all providers.
    pub(crate) memory: MemoryBudget,
}

/// Routes by provider name.
#[derive(Default)]
pub(crate) struct RoutingTable {
    generation: u64,
    routes: HashMap<String, Arc<Route>>,
}

/// A provider with one configuration.
pub(crate) struct Route {
    pub(crate) upstream: Upstream,
    pub(crate) client: Arc<UpstreamClient>,
    pub(crate) provider_state: Arc<ProviderState>,
    /// The account of the configured key, if there is one.
    pub(crate) own_account: Option<Arc<AccountEntry>>,
    generation: u64,
    retry_layer: RetryLayer,
    chain: Option<Chain>,
}

/// A new route whose configuration is not applied yet.
struct PendingRoute {
    upstream: Upstream,
    client: Arc<UpstreamClient>,
    provider_state: Arc<ProviderState>,
    /// Fallbacks, as indexes into the list of upstreams.
    fallback_indices: Vec<usize>,
}

impl RoutingTable {
    /// Returns the route of a provider by the name in the path.
    pub(crate) fn route(&self, name: &str) -> Option<&Arc<Route>> {
        self.routes.get(name)
    }

    /// Returns the names of all providers, sorted.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.routes.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.values()
    }

    /// Returns a table for a new configuration. Providers that remain keep their state. Limits are
    /// changed last, after everything else was checked.
    pub(crate) fn reconfigured(
        &self,
        upstreams: Vec<Upstream>,
        shared: &Shared,
    ) -> Result<Self, GatewayError> {
        validate(&upstreams)?;
        let chains = upstreams.iter().map(|upstream| fallback_indices(upstream, &upstreams));
        let chains: Vec<_> = chains.collect();
        let mut pending_routes = Vec::new();
        for (upstream, fallback_indices) in upstreams.into_iter().zip(chains) {
            let (client, provider_state) =
                (upstream_client(&upstream, shared)?, self.state_of(&upstream, shared)?);
            pending_routes.push(PendingRoute {
                upstream,
                client,
                provider_state,
                fallback_indices,
            });
        }
        self.reconfigure(&pending_routes)?;
        self.build_table(&pending_routes, shared).inspect_err(|_| self.restore(&pending_routes))
    }

    /// Builds the new table after the limits were changed.
    fn build_table(
        &self,
        pending_routes: &[PendingRoute],
        shared: &Shared,
    ) -> Result<Self, GatewayError> {
        let mut own_accounts = Vec::new();
        for PendingRoute { upstream, provider_state, .. } in pending_routes {
            own_accounts.push(
                provider_state.accounts().own().map_err(|source| limits_error(upstream, source))?,
            );
        }
        let generation = self.generation + 1;
        let mut routes = HashMap::new();
        for (pending, own_account) in pending_routes.iter().zip(&own_accounts) {
            let route = match self
                .unchanged_route(pending, pending_routes)
                .filter(|route| route.uses_account(own_account))
            {
                Some(route) => route.clone(),
                None => Arc::new(Route {
                    chain: chain(pending, pending_routes, &own_accounts)?,
                    retry_layer: retry_layer(&pending.upstream, shared),
                    own_account: pending.upstream.credential.is_some().then(|| own_account.clone()),
                    upstream: pending.upstream.clone(),
                    client: pending.client.clone(),
                    provider_state: pending.provider_state.clone(),
                    generation,
                }),
            };
            routes.insert(pending.upstream.name.as_str().to_owned(), route);
        }
        pending_routes.iter().for_each(|pending| self.configure_breaker(pending));
        Ok(Self { generation, routes })
    }

    /// Applies the breaker settings. Resets the breaker if the base URL has changed: past failures
    /// say nothing about another server.
    fn configure_breaker(&self, pending: &PendingRoute) {
        let breaker = pending.provider_state.breaker();
        breaker.configure(pending.upstream.breaker);
        let previous = self.routes.get(pending.upstream.name.as_str());
        if previous.is_some_and(|previous| {
            previous.upstream.destination.base_url != pending.upstream.destination.base_url
        }) {
            breaker.reset();
        }
    }

    /// Returns the existing route if neither it nor its fallbacks have changed.
    fn unchanged_route(
        &self,
        pending: &PendingRoute,
        pending_routes: &[PendingRoute],
    ) -> Option<&Arc<Route>> {
        let existing = |pending: &PendingRoute| {
            let previous = self.routes.get(pending.upstream.name.as_str());
            previous.filter(|route| route.upstream == pending.upstream)
        };
        let fallbacks = pending.upstream.fallback.iter();
        let mut fallbacks = fallbacks
            .filter_map(|name| pending_routes.iter().find(|other| other.upstream.name == *name));
        existing(pending).filter(|_| fallbacks.all(|other| existing(other).is_some()))
    }

    /// Returns the state of a provider, which is kept unless its dialect has changed.
    fn state_of(
        &self,
        upstream: &Upstream,
        shared: &Shared,
    ) -> Result<Arc<ProviderState>, GatewayError> {
        let previous = self.routes.get(upstream.name.as_str());
        if let Some(route) = previous.filter(|route| route.upstream.dialect == upstream.dialect) {
            return Ok(route.provider_state.clone());
        }
        let provider_state = ProviderState::new(upstream, shared);
        let provider_state = provider_state.map_err(|source| limits_error(upstream, source))?;
        Ok(Arc::new(provider_state))
    }

    /// Applies the new limits to all providers or to none.
    fn reconfigure(&self, pending_routes: &[PendingRoute]) -> Result<(), GatewayError> {
        for (done, PendingRoute { upstream, provider_state, .. }) in
            pending_routes.iter().enumerate()
        {
            if let Err(source) = provider_state.reconfigure(upstream) {
                self.restore(pending_routes.get(..done).unwrap_or_default());
                return Err(limits_error(upstream, source));
            }
        }
        Ok(())
    }

    /// Restores the previous limits.
    fn restore(&self, pending_routes: &[PendingRoute]) {
        for pending in pending_routes {
            let Some(previous) = self.routes.get(pending.upstream.name.as_str()) else { continue };
            if let Err(error) = previous.provider_state.reconfigure(&previous.upstream) {
                tracing::error!(
                    provider = %pending.upstream.name,
                    %error,
                    "rollback failed: accounts run with mixed limits"
                );
            }
        }
    }
}

impl Route {
    /// Whether the route uses this account, or has no configured key.
    fn uses_account(&self, own_account: &Arc<AccountEntry>) -> bool {
        self.own_account.as_ref().is_none_or(|previous| Arc::ptr_eq(previous, own_account))
    }

    /// Returns the stack of an account for this configuration.
    pub(crate) fn stack(&self, entry: &AccountEntry) -> Arc<(u64, Stack)> {
        entry.stack(self.generation, |account| Stack {
            account: account.clone(),
            breaker: self.provider_state.breaker().clone(),
            client: self.client.clone(),
            // Each account has its own retry budget, across all configurations.
            retry: self.retry_layer.clone().account(&entry.account),
            chain: self.chain.clone(),
        })
    }

    /// Returns the caller's key, and the path and query to send. If the key selects the account,
    /// all other keys are removed from the request.
    pub(crate) fn caller_key(
        &self,
        headers: &mut HeaderMap,
        target: &Arc<str>,
    ) -> Result<(Credential, Arc<str>), KeyError> {
        let read = CallerKey::read(self.dialect(), headers, target);
        if self.own_account.is_some() || self.dialect().is_keyless() {
            let credential = read.map_or_else(|_| Credential::none(), |key| key.credential);
            return Ok((credential, target.clone()));
        }
        let key = read?;
        let target = key.remove_other_keys(headers, target);
        Ok((key.credential, target))
    }

    /// Returns the metrics label of a model, if it is configured by name.
    pub(crate) fn label(&self, model: Option<&str>) -> Option<Arc<str>> {
        let model = model?;
        self.upstream.models.iter().find(|name| name.eq_ignore_ascii_case(model)).cloned()
    }

    pub(crate) const fn dialect(&self) -> Dialect {
        self.upstream.dialect
    }
}

/// Validates upstreams without changing anything.
pub(crate) fn validate(upstreams: &[Upstream]) -> Result<(), GatewayError> {
    for (index, upstream) in upstreams.iter().enumerate() {
        let name = || upstream.name.as_str().to_owned();
        if upstreams.iter().take(index).any(|other| other.name == upstream.name) {
            return Err(GatewayError::DuplicateName(name()));
        }
        for target in &upstream.fallback {
            if !upstreams.iter().any(|other| other.name == *target) {
                let target = target.as_str().to_owned();
                return Err(GatewayError::UnknownFallback { name: name(), target });
            }
        }
        let fallback_indices = named_fallbacks(upstream, upstreams)
            .filter(|(_, other)| unsuitable_reason(upstream, other).is_none());
        if fallback_indices.count() > MAX_TARGETS {
            return Err(too_many_fallbacks(upstream));
        }
        // Build the accounts on a temporary engine to validate their limits.
        let engines = Engines::new(Engine::new());
        let pool = SlotPool::new(engines.own(), upstream.concurrency);
        let params = AccountParams {
            upstream: upstream.clone(),
            engines,
            observer: tracing_observer(),
            pool,
            memory: MemoryBudget::unlimited(),
        };
        let accounts = Accounts::new(params, AccountConfig::from_upstream(upstream));
        accounts.map_err(|source| limits_error(upstream, source))?;
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
    let key = credential_header(upstream.dialect, key);
    let key = key.map_err(|source| GatewayError::InvalidTarget { name: name(), source })?;
    let header_value =
        |text: &str| HeaderValue::from_str(text).map_err(|_| GatewayError::InvalidName(name()));
    Ok(Arc::new(UpstreamClient {
        label: header_value(upstream.name.as_str())?,
        host: header_value(upstream.destination.authority())?,
        provider: upstream.name.clone(),
        dialect: upstream.dialect,
        destination: upstream.destination.clone(),
        injects_usage_option: upstream.ask_for_usage && upstream.dialect != Dialect::Mistral,
        key,
        redactor,
        classify_rules: match &upstream.retry_statuses {
            Some(statuses) => ClassificationRules::new().retry_statuses(statuses.iter().copied()),
            None => ClassificationRules::new(),
        },
        http: shared.http.clone(),
    }))
}

fn retry_layer(upstream: &Upstream, shared: &Shared) -> RetryLayer {
    let layer = RetryLayer::new(upstream.name.clone())
        .max_retries(upstream.max_retries)
        .base_delay(upstream.retry_base)
        .bounded_log()
        .observer(shared.observer.clone());
    let (provider, max_retries) = (&upstream.name, upstream.max_retries);
    tracing::debug!(%provider, max_retries, "retries configured");
    layer
}

/// Returns the suitable fallbacks of an upstream, as indexes into `all`.
fn fallback_indices(upstream: &Upstream, all: &[Upstream]) -> Vec<usize> {
    let mut fallback_indices = Vec::new();
    for (index, other) in named_fallbacks(upstream, all) {
        match unsuitable_reason(upstream, other) {
            None if other.name != upstream.name => fallback_indices.push(index),
            None => {}
            Some(reason) => {
                let (provider, fallback) = (&upstream.name, &other.name);
                tracing::warn!(%provider, %fallback, reason, "fallback skipped");
            }
        }
    }
    fallback_indices
}

/// Returns the fallbacks that an upstream names, in its order.
fn named_fallbacks<'u>(
    upstream: &'u Upstream,
    all: &'u [Upstream],
) -> impl Iterator<Item = (usize, &'u Upstream)> {
    let position = |name: &Provider| all.iter().enumerate().find(|(_, other)| other.name == *name);
    upstream.fallback.iter().filter_map(position)
}

/// Returns why calls cannot fall back from one provider to another, if they cannot.
fn unsuitable_reason(upstream: &Upstream, other: &Upstream) -> Option<&'static str> {
    fallback::unsuitable_reason(upstream.dialect, other.dialect, other.credential.is_some())
}

/// Builds the chain of fallbacks, with the limits of their configured keys.
fn chain(
    pending: &PendingRoute,
    pending_routes: &[PendingRoute],
    own_accounts: &[Arc<AccountEntry>],
) -> Result<Option<Chain>, GatewayError> {
    let fallback_indices = pending.fallback_indices.iter().filter_map(|index| {
        let (other, own_account) = (pending_routes.get(*index)?, own_accounts.get(*index)?);
        let models = pending.upstream.fallback_models.get(&other.upstream.name);
        let models = models.cloned().unwrap_or_default();
        Some(fallback_target(own_account, &other.client, other.provider_state.breaker(), models))
    });
    let fallback_indices: Vec<_> = fallback_indices.collect();
    if fallback_indices.is_empty() {
        return Ok(None);
    }
    let chain = Chain::from_fns(pending.upstream.name.clone(), fallback_indices);
    chain.map(Some).map_err(|_| too_many_fallbacks(&pending.upstream))
}

fn too_many_fallbacks(upstream: &Upstream) -> GatewayError {
    GatewayError::TooManyFallbacks(upstream.name.as_str().to_owned())
}

fn limits_error(upstream: &Upstream, source: LimitError) -> GatewayError {
    GatewayError::Limits { name: upstream.name.as_str().to_owned(), source }
}
