//! Converts configured providers into upstreams of the gateway.

use tidegate_config::{Config, ProviderConfig};
use tidegate_gateway::{GatewayError, Upstream};
use tidegate_providers::{Dialect, Endpoint};

use crate::metrics::Metrics;

/// Returns the upstreams of all configured providers.
///
/// # Errors
/// If an address or a key is invalid; the configuration has already checked most of them.
pub(super) fn upstreams(plan: &Config) -> Result<Vec<Upstream>, GatewayError> {
    // The mock provider is for library users and has no HTTP endpoint.
    let providers = plan.providers.iter().filter(|(_, plan)| plan.dialect() != Dialect::Mock);
    let to_upstream = |(name, provider): (&String, &ProviderConfig)| {
        let upstream = upstream(name, provider)?;
        Ok(match plan.proxy.proxy_for(&provider.base_url.value) {
            Some(proxy) => upstream.proxy(proxy.clone()),
            None => upstream,
        })
    };
    providers.map(to_upstream).collect()
}

fn upstream(name: &str, plan: &ProviderConfig) -> Result<Upstream, GatewayError> {
    let mut upstream = Upstream::new(name, plan.dialect(), &plan.base_url.value)?
        .max_retries(plan.max_retries.value)
        .retry_base(plan.retry_base.value)
        .retry_statuses(plan.retry_statuses.value.iter().copied())
        .max_wait(plan.max_wait.value)
        .connect_timeout(plan.connect_timeout.value)
        .first_byte_timeout(plan.first_byte_timeout.value)
        .idle_timeout(plan.idle_timeout.value)
        .ask_for_usage(plan.ask_for_usage.value)
        .fallback(plan.fallback.value.iter().map(String::as_str))
        .models(plan.models.value.iter().map(String::as_str));
    if let Some(credential) = plan.credential() {
        upstream = upstream.credential(credential.clone())?;
    }
    if let Some(roots) = plan.roots() {
        upstream = upstream.root_certificates(roots.iter().cloned())?;
    }
    for (target, models) in &plan.fallback_models {
        let models = models.iter().map(|(from, to)| (from.as_str(), to.as_str()));
        upstream = upstream.fallback_models(target, models);
    }
    if let Some(constraint) = plan.constraint() {
        upstream = upstream.limits(constraint.clone());
    }
    let all_keys = &plan.all_keys;
    upstream = upstream
        .all_keys_limits(all_keys.requests_per_minute.value, all_keys.tokens_per_minute.value);
    upstream = upstream.concurrency(plan.pool_size());
    for (pattern, constraint) in plan.tier_limits() {
        upstream = upstream.tier_model(pattern, constraint.clone());
    }
    for (pattern, limits) in &plan.model_limits {
        if let Some(constraint) = limits.constraint() {
            upstream = upstream.model(pattern, constraint.clone());
        }
    }
    upstream = if plan.breaker.enabled.value {
        upstream.breaker(plan.breaker.failures.value, plan.breaker.open_for.value)
    } else {
        upstream.without_breaker()
    };
    if plan.ramp.is_on() {
        let (floor, over) = (plan.ramp.floor.value.get().into(), plan.ramp.over.value);
        upstream = upstream.ramp_up(floor, over);
    }
    for (endpoint, limits) in &plan.endpoints {
        let paths = limits.paths.value.iter().flatten().cloned();
        upstream = upstream.endpoint_paths(Endpoint::new(endpoint), paths);
        if let Some(constraint) = limits.constraint() {
            upstream = upstream.endpoint(Endpoint::new(endpoint), constraint.clone());
        }
    }
    Ok(upstream)
}

/// Sets the providers and models that metrics may use as labels.
pub(super) fn set_provider_labels(metrics: &Metrics, plan: &Config) {
    let providers = plan.providers.iter().map(|(name, plan)| {
        let models: Vec<_> = plan.models.value.iter().map(String::as_str).collect();
        (name.as_str(), models)
    });
    metrics.llm().set_providers(providers);
}
