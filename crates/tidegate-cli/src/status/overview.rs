//! What the admin API says, put together: the document that `--json` prints.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::admin_api::{AdminApi, StatusError};
use super::samples::Samples;

/// Status of a server that can decide.
const READY: &str = "ready";

/// The state of a server.
#[derive(Debug, Serialize)]
pub(super) struct Overview {
    pub(super) admin: String,
    /// `ready`, or `not ready`.
    pub(super) status: String,
    /// Why it is not ready.
    pub(super) reasons: Vec<Reason>,
    pub(super) version: String,
    pub(super) uptime_ms: u64,
    /// Bound addresses by listener.
    pub(super) listeners: BTreeMap<String, String>,
    /// Revision of the configuration.
    pub(super) revision: u64,
    pub(super) store: Store,
    pub(super) limits: Vec<Limit>,
    pub(super) providers: Vec<Provider>,
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Reason {
    pub(super) code: String,
    pub(super) detail: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Store {
    /// Its URL, without credentials.
    pub(super) url: String,
    /// Whether failure rules decide, because it is unavailable.
    pub(super) degraded: bool,
    /// Keys in it and the most that it can have; only of the in-process store.
    pub(super) keys: Option<u64>,
    pub(super) max_keys: Option<u64>,
}

/// Decisions on a limit since the start.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Limit {
    pub(super) name: String,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) errors: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) waiting: u64,
    pub(super) oldest_wait_ms: u64,
    pub(super) in_flight: u64,
    pub(super) concurrency_limit: Option<u64>,
    /// What the calls in the longest queue wait for.
    pub(super) limited_by: Option<String>,
    /// Models on hold, and the longest time that is left.
    pub(super) holds: u64,
    pub(super) hold_remaining_ms: u64,
    /// State of the circuit breaker: `closed`, `open` or `half_open`; `null` without one.
    pub(super) breaker: Option<String>,
    /// Used fraction of each limit, for the account that uses most of it.
    pub(super) quota_used: BTreeMap<String, f64>,
    /// Calls that the provider answered with 429, since the start.
    pub(super) upstream_429: u64,
}

impl Provider {
    /// Whether there is nothing to say about it.
    pub(super) fn is_idle(&self) -> bool {
        let is_quiet = self.waiting + self.in_flight + self.holds + self.upstream_429 == 0;
        let is_unused = self.quota_used.values().all(|used| *used == 0.0);
        is_quiet && is_unused && self.breaker.as_deref().is_none_or(|state| state == "closed")
    }
}

impl Overview {
    /// Reads all documents of a server.
    pub(super) async fn read(api: &AdminApi) -> Result<Self, StatusError> {
        let readiness = api.readiness().await?;
        let config = api.json("/admin/config").await?;
        let providers = api.json("/admin/providers").await?;
        let metrics = api.text("/metrics").await?;
        let samples = Samples::read(&metrics);
        let server = config.get("server").ok_or_else(|| api.missing("server"))?;
        let listeners = server["listeners"].as_object().into_iter().flatten();
        let listeners = listeners.map(|(name, address)| (name.clone(), text(address)));
        let setting = |key: &str| {
            let mut settings = items(&config["settings"]);
            settings.find(|one| one["key"] == key).map(|one| text(&one["value"]))
        };
        Ok(Self {
            admin: api.url(),
            status: text(&readiness["status"]),
            reasons: items(&readiness["reasons"]).map(Reason::of).collect(),
            version: text(&server["version"]),
            uptime_ms: whole(&server["uptime_ms"]),
            listeners: listeners.collect(),
            revision: whole(&config["revision"]),
            store: Store::of(setting("store.url").unwrap_or_default(), &samples),
            limits: limits(&samples),
            providers: items(&providers["providers"])
                .map(|provider| Provider::of(provider, &samples))
                .collect(),
            warnings: items(&config["warnings"]).map(text).collect(),
        })
    }

    pub(super) fn is_ready(&self) -> bool {
        self.status == READY
    }
}

/// Whether a document of `/readyz` says that the server is ready.
pub(super) fn is_ready(readiness: &Value) -> bool {
    readiness["status"] == READY
}

impl Reason {
    fn of(reason: &Value) -> Self {
        Self { code: text(&reason["code"]), detail: text(&reason["detail"]) }
    }
}

impl Store {
    fn of(url: String, samples: &Samples<'_>) -> Self {
        Self {
            url,
            degraded: samples.of("tidegate_store_degraded").any(|sample| sample.value > 0.0),
            keys: samples.value("tidegate_keys").map(count),
            max_keys: samples.value("tidegate_max_keys").map(count),
        }
    }
}

impl Provider {
    fn of(provider: &Value, samples: &Samples<'_>) -> Self {
        let name = text(&provider["provider"]);
        let label = ("provider", name.as_str());
        let sum = |metric: &str| samples.sum(metric, label).unwrap_or(0.0);
        let own = |metric| samples.of(metric).filter(move |it| it.label(label.0) == label.1);
        let breaker = own("tidegate_llm_breaker_state").find(|state| state.value > 0.0);
        let quota = own("tidegate_llm_quota_used_ratio");
        Self {
            waiting: whole(&provider["waiting"]),
            oldest_wait_ms: whole(&provider["oldest_wait_ms"]),
            in_flight: whole(&provider["in_flight"]),
            concurrency_limit: provider["concurrency_limit"].as_u64(),
            limited_by: provider["limited_by"].as_str().map(ToOwned::to_owned),
            holds: count(sum("tidegate_llm_holds")),
            hold_remaining_ms: count(sum("tidegate_llm_hold_remaining_seconds") * 1_000.0),
            breaker: breaker.map(|state| state.label("state").to_owned()),
            quota_used: quota.map(|it| (it.label("dimension").to_owned(), it.value)).collect(),
            upstream_429: count(sum("tidegate_llm_upstream_429_total")),
            name,
        }
    }
}

/// Sums the decisions of each limit over all listeners.
fn limits(samples: &Samples<'_>) -> Vec<Limit> {
    let mut limits: BTreeMap<&str, Limit> = BTreeMap::new();
    for sample in samples.of("tidegate_decisions_total") {
        let name = sample.label("limit");
        let limit = limits.entry(name).or_default();
        limit.name = name.to_owned();
        match sample.label("outcome") {
            "allowed" => limit.allowed += count(sample.value),
            "denied" => limit.denied += count(sample.value),
            _ => limit.errors += count(sample.value),
        }
    }
    limits.into_values().collect()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Rounds the value of a sample to a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and counts are small"
)]
fn count(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_summed_over_listeners() {
        let text = "tidegate_decisions_total{limit=\"a\",door=\"http\",outcome=\"allowed\"} 3\n\
                    tidegate_decisions_total{limit=\"a\",door=\"rpc\",outcome=\"allowed\"} 2\n\
                    tidegate_decisions_total{limit=\"a\",door=\"http\",outcome=\"denied\"} 1\n\
                    tidegate_decisions_total{limit=\"b\",door=\"http\",outcome=\"error\"} 4\n";
        let limit = |name: &str, allowed, denied, errors| Limit {
            name: name.to_owned(),
            allowed,
            denied,
            errors,
        };
        assert_eq!(limits(&Samples::read(text)), [limit("a", 5, 1, 0), limit("b", 0, 0, 4)]);
    }
}
