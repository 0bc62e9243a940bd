//! All metrics, checked with promtool, and a flood of unconfigured names.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate::guard::GuardedStore;
use tidegate::{Engine, MemoryStore, Policy, Store};
use tidegate_core::breaker::BreakerState;
use tidegate_llm::telemetry::{Acquired, Observer as _};
use tidegate_providers::{Class, Provider, Usage};
use tidegate_testkit::launch::check_metrics;

use super::*;

/// Creates metrics with every value recorded at least once.
async fn all_recorded() -> Metrics {
    let metrics = Metrics::default();
    metrics.add_limits(["client", "daily"]);
    let listener = metrics.listener("http");
    for limit in [listener.limit("client"), listener.inline(), listener.limit("made-up")] {
        for outcome in [DecisionOutcome::Allowed, DecisionOutcome::Denied, DecisionOutcome::Failed]
        {
            limit.count(outcome);
        }
        limit.count_new_key();
    }
    listener.record_duration(Duration::from_micros(40));
    let connections = metrics.connections("http");
    connections.refused();
    connections.evicted(2);
    metrics.set_revision(7);
    metrics.count_change("admin", "applied");
    record_calls(&metrics.llm());
    record_admissions(&metrics);
    let memory = Arc::new(MemoryStore::builder().build().unwrap());
    let engine = Engine::on(memory.clone());
    let limiter = engine.limiter("client", Policy::per_second(1).build().unwrap()).unwrap();
    assert!(limiter.take("alice").await.unwrap().is_allowed());
    let guard = GuardedStore::builder(memory.clone() as Arc<dyn Store>).build().unwrap();
    metrics.set_store_source(move || StoreStats {
        store: "redis",
        table: Some(memory.stats()),
        snapshots: Some(SnapshotStats { saved: 9, failed: 2 }),
        guard: Some((false, guard.stats())),
    });
    metrics.set_providers_source(|| {
        Box::pin(async {
            let limit = LimitStats {
                model: "gpt-5".into(),
                dimension: "tokens",
                source: "learned",
                limit: 90_000,
                bucket: Some(-40),
                reported: Some(120),
            };
            vec![ProviderStats {
                provider: "openai".to_owned(),
                queued: 3,
                oldest: Duration::from_millis(1_500),
                tenants: vec![("0f1e2d3c".to_owned(), 2), ("other".to_owned(), 1)],
                concurrency: Some((8, "fixed")),
                breaker: BreakerStats { state: BreakerState::Open, open_models: 1, opened: 7 },
                holds: (1, Duration::from_millis(2_500)),
                used: vec![("requests", 0.25), ("tokens", 0.5)],
                limits: vec![limit],
            }]
        })
    });
    metrics.refresh().await;
    metrics
}

/// Counts each admission outcome once.
fn record_admissions(metrics: &Metrics) {
    use tidegate::PolicyChange;
    use tidegate::admission::{Admission, Caller, Rules};
    let rules = Rules::default().backpressure(5);
    let rules = rules.allow_organization("probes").allow_client("acme", "export");
    let admission = Admission::new(&Engine::new(), rules.clone()).unwrap();
    let metrics_of_admission = metrics.admission();
    let admit =
        |caller: Caller<'_>| metrics_of_admission.count(&admission.admit(caller).now().unwrap());
    let alice = Caller::new().organization("acme").client("alice");
    admit(alice);
    admit(alice.cost(1_000));
    admit(Caller::new().organization("acme").cost(2_000));
    admit(Caller::new().organization("acme").client("export"));
    admit(Caller::new().organization("probes").client("export"));
    admission.reconfigure(rules.shadow(true), PolicyChange::KeepTokens).unwrap();
    admit(alice.cost(1_000));
    admission.set_pending(6, Duration::from_secs(60));
    admit(alice);
    admission.reconfigure(Rules::default().backpressure(5), PolicyChange::KeepTokens).unwrap();
    admit(alice);
    admission.disable();
    admit(alice);
    metrics.set_admission_source(move || AdmissionStats { pending: 6, threshold: Some(5) });
}

fn record_calls(llm: &LlmMetrics) {
    llm.set_providers([("openai", ["gpt-5"])]);
    let openai = Provider::new("openai");
    let mut acquired = Acquired::new(&openai, "scope");
    acquired.estimated_tokens = 300;
    llm.acquired(&acquired);
    acquired.wait = Duration::from_secs(2);
    let parts =
        [("tokens", Duration::from_millis(1_750)), ("requests", Duration::from_millis(250))];
    acquired.waited_for = &parts;
    llm.acquired(&acquired);
    llm.wait_started(&openai);
    llm.call_started(&openai);
    llm.call_started(&openai);
    llm.wait_ended(&openai);
    llm.call_ended(&openai);
    llm.throttled(&openai, "scope", Duration::from_secs(1));
    let delay = Some(Duration::from_secs(4));
    llm.failed(&openai, Class::Transient, 1, delay);
    llm.failed(&openai, Class::Overloaded, 2, None);
    llm.recovered(&openai, 2);
    let usage = Usage { input: 100, output: 20, ..Usage::default() };
    let call = Call {
        provider: "openai",
        model: "gpt-5",
        outcome: "ok",
        usage: Some(usage),
        served_by: "openai",
        response_failure: Some(Class::Overloaded),
    };
    llm.finished(&call);
    llm.finished(&Call { model: "made-up", usage: None, response_failure: None, ..call });
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
}

#[tokio::test(start_paused = true)]
async fn promtool_accepts_every_metric() {
    let text = all_recorded().await.text(Format::Classic);
    assert_eq!(check_metrics(&text), Vec::<String>::new(), "{text}");
    let typed = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
    let sampled: BTreeSet<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(typed >= 30 && sampled.len() > typed, "{typed}\n{text}");
}

#[tokio::test(start_paused = true)]
async fn every_documented_metric_exists() {
    let text = all_recorded().await.text(Format::Classic);
    for line in [
        r#"tidegate_decisions_total{door="http",limit="client",outcome="allowed"} 1"#,
        r#"tidegate_decisions_total{door="http",limit="inline",outcome="denied"} 1"#,
        r#"tidegate_decisions_total{door="http",limit="other",outcome="error"} 1"#,
        r#"tidegate_decision_duration_seconds_bucket{le="0.00005",door="http"} 1"#,
        r#"tidegate_admissions_total{tier="backpressure",outcome="admitted"} 1"#,
        r#"tidegate_admissions_total{tier="backpressure",outcome="rejected"} 1"#,
        r#"tidegate_admissions_total{tier="backpressure",outcome="shadow"} 1"#,
        r#"tidegate_admissions_total{tier="backpressure",outcome="allow_listed"} 0"#,
        r#"tidegate_admissions_total{tier="client",outcome="admitted"} 1"#,
        r#"tidegate_admissions_total{tier="client",outcome="rejected"} 1"#,
        r#"tidegate_admissions_total{tier="client",outcome="shadow"} 1"#,
        r#"tidegate_admissions_total{tier="client",outcome="allow_listed"} 1"#,
        r#"tidegate_admissions_total{tier="organization",outcome="admitted"} 1"#,
        r#"tidegate_admissions_total{tier="organization",outcome="rejected"} 1"#,
        r#"tidegate_admissions_total{tier="organization",outcome="shadow"} 0"#,
        r#"tidegate_admissions_total{tier="organization",outcome="allow_listed"} 1"#,
        "tidegate_admission_pending 6",
        "tidegate_admission_backpressure_threshold 5",
        r#"tidegate_store_degraded{store="redis"} 1"#,
        r#"tidegate_snapshots_total{outcome="saved"} 9"#,
        r#"tidegate_snapshots_total{outcome="failed"} 2"#,
        "tidegate_keys 1",
        r#"tidegate_new_keys_total{limit="client"} 1"#,
        "tidegate_overflow_total 0",
        r#"tidegate_degraded_decisions_total{rule="closed"} 0"#,
        r#"tidegate_llm_requests_total{provider="openai",model="gpt-5",outcome="ok"} 1"#,
        r#"tidegate_llm_requests_total{provider="openai",model="other",outcome="ok"} 1"#,
        r#"tidegate_llm_wait_seconds_sum{provider="openai",limited_by="tokens"} 1.75"#,
        r#"tidegate_llm_wait_seconds_sum{provider="openai",limited_by="requests"} 0.25"#,
        r#"tidegate_llm_wait_seconds_count{provider="openai",limited_by="tokens"} 1"#,
        r#"tidegate_llm_wait_seconds_count{provider="openai",limited_by="nothing"} 1"#,
        r#"tidegate_llm_queue_length{provider="openai"} 3"#,
        r#"tidegate_llm_breaker_state{provider="openai",state="open"} 1"#,
        r#"tidegate_llm_breaker_state{provider="openai",state="closed"} 0"#,
        r#"tidegate_llm_breaker_open_models{provider="openai"} 1"#,
        r#"tidegate_llm_breaker_opened_total{provider="openai"} 7"#,
        r#"tidegate_llm_queue_oldest_seconds{provider="openai"} 1.5"#,
        r#"tidegate_llm_upstream_429_total{provider="openai"} 1"#,
        r#"tidegate_llm_tokens_total{provider="openai",kind="input",source="reported"} 100"#,
        r#"tidegate_llm_quota_used_ratio{provider="openai",dimension="tokens"} 0.5"#,
        r#"tidegate_llm_tenant_queue_length{provider="openai",tenant="0f1e2d3c"} 2"#,
        r#"tidegate_llm_tenant_queue_length{provider="openai",tenant="other"} 1"#,
        r#"tidegate_llm_concurrency_limit{provider="openai",reason="fixed"} 8"#,
        r#"tidegate_llm_holds{provider="openai"} 1"#,
        r#"tidegate_llm_hold_remaining_seconds{provider="openai"} 2.5"#,
        r#"tidegate_llm_limit{provider="openai",model="gpt-5",dimension="tokens",source="learned"} 90000"#,
        r#"tidegate_llm_limit_remaining{provider="openai",model="gpt-5",dimension="tokens"} -40"#,
        r#"tidegate_llm_limit_reported_remaining{provider="openai",model="gpt-5",dimension="tokens"} 120"#,
        r#"tidegate_rate_limit_acquisitions_total{provider="openai"} 2"#,
        r#"tidegate_rate_limit_delays_total{provider="openai"} 1"#,
        r#"tidegate_rate_limit_wait_time_seconds_sum{provider="openai"} 2.0"#,
        r#"tidegate_rate_limit_tokens_reserved_sum{provider="openai"} 600.0"#,
        r#"tidegate_llm_waiting{provider="openai"} 0"#,
        r#"tidegate_llm_in_flight{provider="openai"} 1"#,
        r#"tidegate_llm_retry_delay_seconds_sum{provider="openai"} 4.0"#,
        r#"tidegate_llm_retries_until_success_sum{provider="openai"} 2.0"#,
        r#"tidegate_llm_failures_total{provider="openai",class="overloaded"} 2"#,
        r#"tidegate_llm_answer_failures_total{provider="openai",class="overloaded"} 1"#,
        "tidegate_config_revision 7",
        r#"tidegate_config_changes_total{door="admin",outcome="applied"} 1"#,
        concat!(r#"tidegate_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
    ] {
        has(&text, line);
    }
}

/// Labels chosen by callers can overload Prometheus with series.
#[tokio::test(start_paused = true)]
async fn unconfigured_names_add_no_series() {
    let metrics = all_recorded().await;
    let (listener, llm) = (metrics.listener("http"), metrics.llm());
    let flood = |round: usize| {
        for n in 0..1_000 {
            let name = format!("name-{round}-{n}");
            listener.limit(&name).count(DecisionOutcome::Denied);
            let provider = Provider::new(&name);
            llm.acquired(&Acquired::new(&provider, &name));
            llm.throttled(&provider, &name, Duration::ZERO);
            let call = Call {
                provider: &name,
                model: &name,
                outcome: "ok",
                usage: Some(Usage::default()),
                served_by: &name,
                response_failure: Some(Class::Transient),
            };
            llm.finished(&call);
            llm.finished(&Call { provider: "openai", served_by: "openai", ..call });
        }
        metrics.text(Format::Classic)
    };
    let (first, second) = (flood(1), flood(2));
    assert_eq!(first.lines().count(), second.lines().count());
    assert!(!second.contains("name-"));
    has(&second, r#"tidegate_decisions_total{door="http",limit="other",outcome="denied"} 2001"#);
    has(&second, r#"tidegate_llm_upstream_429_total{provider="other"} 2000"#);
}

/// A call in flight when its provider is removed from the configuration must still decrement the
/// gauge.
#[test]
fn gauges_of_a_removed_provider_return_to_zero() {
    let metrics = Metrics::default();
    let (llm, groq) = (metrics.llm(), Provider::new("groq"));
    llm.set_providers([("groq", [])]);
    llm.call_started(&groq);
    llm.set_providers([("openai", ["gpt-5"])]);
    llm.call_ended(&groq);
    has(&metrics.text(Format::Classic), r#"tidegate_llm_in_flight{provider="groq"} 0"#);
}

#[test]
fn both_formats_have_the_same_samples() {
    let metrics = Metrics::default();
    metrics.listener("http").limit("client").count(DecisionOutcome::Allowed);
    let samples = |format| {
        let text = metrics.text(format);
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(samples(Format::OpenMetrics), samples(Format::Classic));
    assert!(metrics.text(Format::OpenMetrics).contains("# TYPE tidegate_decisions counter\n"));
}
