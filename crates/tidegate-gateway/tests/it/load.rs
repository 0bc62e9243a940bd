//! Agents that demand more than a provider allows, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::json;
use tidegate::pacer::PoolSize;
use tidegate_gateway::{Gateway, Upstream};
use tidegate_llm::plan::{Constraint, RawConstraint};
use tidegate_providers::Dialect;
use tidegate_sim::{Account, Delay, Fault, Faults, Limits, Output, Simulator};
use tokio::time::Instant;

use crate::support::{ACCOUNT, MILLI, MODEL, SECOND, is_idle, send};
use crate::transport;

fn limits(requests: i64, tokens: i64, max_concurrent: Option<i64>) -> Constraint {
    let raw = RawConstraint {
        requests_per_minute: Some(requests),
        tokens_per_minute: Some(tokens),
        max_concurrent_requests: max_concurrent,
        ..RawConstraint::default()
    };
    Constraint::try_new(&raw).unwrap()
}

fn gateway(simulator: &Simulator, upstream: Upstream, seed: u64) -> Gateway {
    let http = transport::http(simulator).with_jitter(seed);
    Gateway::builder(&crate::support::engine()).http(http).upstream(upstream).build().unwrap()
}

/// A chat request of `words` words, for a tenant, with a key.
fn chat(
    words: usize,
    max_tokens: u64,
    stream: bool,
    tenant: &str,
    key: &str,
) -> Request<Full<Bytes>> {
    let text = "tide ".repeat(words);
    let body = json!({
        "model": MODEL, "max_tokens": max_tokens, "stream": stream,
        "messages": [{ "role": "user", "content": text }],
    });
    Request::post("/openai/v1/chat/completions")
        .header("authorization", format!("Bearer {key}"))
        .header("x-tidegate-tenant", tenant)
        .header("x-tidegate-max-wait-ms", "600000")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap()
}

/// Forty clients of eight tenants send 25 requests each, all at once.
#[tokio::test(start_paused = true)]
async fn a_burst_of_forty_clients_uses_the_quota_without_errors() {
    for seed in 0..4_u64 {
        let phase = MILLI * u32::try_from(seed * 237 % 1_000).unwrap();
        let quota = Limits::new()
            .requests_per_minute(600)
            .tokens_per_minute(90_000)
            .concurrency(8)
            .slice(SECOND)
            .phase(phase);
        let account = Account::new(tidegate_sim::Dialect::OpenAi, ACCOUNT, "sk-1")
            .model(MODEL, quota)
            .output(Output::between(10..=60))
            .first_token(Delay::between(MILLI * 200..=MILLI * 800));
        let simulator = Simulator::builder().account(account).seed(seed).build().unwrap();
        let upstream = Upstream::new("openai", Dialect::OpenAi, "http://sim.test").unwrap();
        let gateway = gateway(&simulator, upstream.limits(limits(600, 90_000, Some(8))), seed);
        let start = Instant::now();
        let clients: Vec<_> = (0..40)
            .map(|client| {
                let gateway = gateway.clone();
                tokio::spawn(async move {
                    let mut ends = Vec::new();
                    for number in 0..25 {
                        let request =
                            chat(20, 60, number % 2 == 0, &format!("t-{}", client % 8), "sk-1");
                        let response = send(&gateway, request).await;
                        assert_eq!(response.status, 200, "{:?}", response.body);
                        ends.push(start.elapsed());
                    }
                    ends
                })
            })
            .collect();
        // Measured from the first response of each client to its last but one: which client is last
        // is a matter of chance.
        let (mut last, mut cycles) = (Duration::ZERO, [Duration::ZERO; 8]);
        for (client, ends) in clients.into_iter().enumerate() {
            let ends = ends.await.unwrap();
            last = last.max(ends[24]);
            cycles[client % 8] += ends[23] - ends[0];
        }
        let (least, most) = (*cycles.iter().min().unwrap(), *cycles.iter().max().unwrap());
        let ledger = simulator.ledger();
        let summary = format!(
            "seed {seed}: {least:?} to {most:?}, {last:?}, {} of {}",
            ledger.throttled(),
            ledger.seen()
        );
        assert!(ledger.throttled() * 200 <= ledger.seen(), "{summary}");
        // A thousand requests at ten a second.
        assert!(last <= SECOND * 105, "{summary}");
        assert!(least.as_secs_f64() >= most.as_secs_f64() * 0.95, "{summary}");
        let usage = simulator.usage(ACCOUNT, MODEL, SECOND * 10..SECOND * 90).unwrap();
        assert!(usage.ratio() >= 0.97, "{summary}: {usage:?}");
        assert!(is_idle(&gateway), "{summary}");
    }
}

/// Result of a load run.
struct LoadResult {
    simulator: Simulator,
    errors: u64,
    /// Waits of the tenants with few agents, sorted.
    waits: Vec<Duration>,
}

impl LoadResult {
    fn p99(&self) -> Duration {
        self.waits[self.waits.len() * 99 / 100]
    }
}

/// Runs agents on two keys: twenty tenants of five agents per key; the first tenant has `greedy`
/// agents if that is not zero.
async fn agents(greedy: usize, span: Duration) -> LoadResult {
    let account = |label: &str, key: &str| {
        let quota = Limits::new().requests_per_minute(4_000).tokens_per_minute(2_000_000);
        Account::new(tidegate_sim::Dialect::OpenAi, label, key)
            .model(MODEL, quota)
            .output(Output::between(20..=200))
            // Half of all calls take at most 1.2 s, and one in a hundred takes 6 s.
            .faults(Faults::new().by_chance(1, 60, Fault::SlowStart(MILLI * 4_800)))
            .first_token(Delay::between(MILLI * 300..=MILLI * 800))
            .per_token(Delay::between(MILLI..=MILLI * 12))
    };
    let builder =
        Simulator::builder().account(account("one", "sk-1")).account(account("two", "sk-2"));
    let simulator = builder.seed(5).build().unwrap();
    let upstream = Upstream::new("openai", Dialect::OpenAi, "http://sim.test")
        .unwrap()
        .limits(limits(4_000, 2_000_000, None))
        .concurrency(PoolSize::Fixed(400));
    let gateway = gateway(&simulator, upstream, 5);
    let waits: Arc<Mutex<(u64, Vec<Duration>)>> = Arc::default();
    let start = Instant::now();
    let mut all = Vec::new();
    for key in ["sk-1", "sk-2"] {
        for tenant in 0..20_usize {
            let is_greedy = tenant == 0 && greedy > 0;
            for agent in 0..if is_greedy { greedy } else { 5 } {
                let (gateway, waits) = (gateway.clone(), waits.clone());
                all.push(tokio::spawn(async move {
                    let mut number = agent;
                    while start.elapsed() < span {
                        number += 1;
                        let request = chat(500, 400, number % 2 == 0, &format!("t-{tenant}"), key);
                        let response = send(&gateway, request).await;
                        let mut waits = waits.lock().unwrap();
                        waits.0 += u64::from(response.status != 200);
                        if tenant > 0 && start.elapsed() > SECOND * 30 {
                            let wait = response.number("x-tidegate-wait-ms");
                            waits.1.push(Duration::from_millis(wait));
                        }
                    }
                }));
            }
        }
    }
    for one in all {
        one.await.unwrap();
    }
    let (errors, mut waits) = std::mem::take(&mut *waits.lock().unwrap());
    waits.sort();
    assert!(is_idle(&gateway));
    LoadResult { simulator, errors, waits }
}

#[tokio::test(start_paused = true)]
async fn a_greedy_tenant_does_not_delay_others() {
    let span = SECOND * 90;
    let equal = agents(0, span).await;
    let crowded = agents(60, span).await;
    for (name, result) in [("equal", &equal), ("crowded", &crowded)] {
        assert_eq!(result.errors, 0, "{name}");
        for label in ["one", "two"] {
            let usage = result.simulator.usage(label, MODEL, SECOND * 30..span).unwrap();
            assert!(usage.ratio() >= 0.95, "{name} {label}: {usage:?}");
        }
    }
    let (equal_p99, crowded_p99) = (equal.p99(), crowded.p99());
    assert!(
        crowded_p99.as_secs_f64() <= equal_p99.as_secs_f64() * 1.2,
        "{equal_p99:?} and {crowded_p99:?}"
    );
}
