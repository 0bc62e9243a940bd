//! The admin API and metrics show the limits that providers report and that apply to calls.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use tidegate_sim::{Charging, Delay, Dialect, Fault, Faults, Limits, Output, Reporting};
use tidegate_testkit::launch::{check_metrics, wait_until};

use super::fixtures::{Gateway, KEY, Provider, Sdk};
use super::traffic::{CallOptions, Caller};

/// Returns the provider from the admin API.
fn shown(gateway: &Gateway) -> Value {
    let (status, body) = gateway.ask("/admin/providers/openai");
    assert_eq!(status, 200, "{body}");
    assert!(!body.contains(KEY), "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Returns the metrics, checked with Prometheus's linter.
fn metrics(gateway: &Gateway) -> String {
    let (status, text) = gateway.ask("/metrics");
    assert_eq!(status, 200, "{text}");
    assert_eq!(check_metrics(&text), Vec::<String>::new(), "{text}");
    assert!(!text.contains(KEY), "{text}");
    text
}

/// Returns the value of a series.
#[track_caller]
fn sample(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in\n{text}")).parse().unwrap()
}

/// Returns the limit on a dimension from a list.
#[track_caller]
fn limit_on<'a>(limits: &'a Value, dimension: &str) -> &'a Value {
    let mut all = limits.as_array().unwrap().iter();
    let found = all.find(|limit| limit["dimension"] == dimension);
    found.unwrap_or_else(|| panic!("no limit on {dimension} in {limits:#}"))
}

#[test]
fn reported_limits_are_shown_with_source_and_remaining() {
    let limits = Limits::new().requests_per_minute(600).tokens_per_minute(90_000);
    let provider = Provider::start(Sdk::OPENAI.account().any_model(limits));
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "models = [\"tidal-1\"]");
    let before = shown(&gateway);
    assert_eq!(before["accounts"][0]["queues"], Value::Array(Vec::new()), "{before:#}");

    let options = CallOptions { max_tokens: Some(1_000), ..CallOptions::default() };
    assert_eq!(Caller::new(&gateway).call(options).status, Some(200));
    let provider = shown(&gateway);
    let accounts = provider["accounts"].as_array().unwrap();
    let account = accounts.iter().find(|account| account["owner"] == "caller").unwrap();
    let model = &account["queues"][0]["models"][0];
    assert_eq!((&model["model"], &model["hold"]), (&"tidal-1".into(), &Value::Null));
    for (dimension, limit) in [("requests", 600), ("tokens", 90_000)] {
        let shown = limit_on(&model["limits"], dimension);
        assert_eq!(shown["limit_per_minute"], limit, "{shown:#}");
        assert_eq!((&shown["source"], &shown["in_force"]), (&"learned".into(), &true.into()));
        assert_eq!(shown["learned_from"], "response_headers", "{shown:#}");
        let (learned, age) = (&shown["learned_ms_ago"], &shown["reported"]["age_ms"]);
        assert!(learned.as_u64().unwrap() < 20_000 && learned == age, "{shown:#}");
        let reported = shown["reported"]["remaining"].as_u64().unwrap();
        assert!((limit * 9 / 10..limit).contains(&reported), "{shown:#}");
        assert!(shown["bucket"]["remaining"].as_i64().unwrap() <= limit as i64, "{shown:#}");
        assert_eq!(shown["reserved"], 0, "no call is in progress: {shown:#}");
        let paced = shown["pace"]["per_minute"].as_u64().unwrap();
        assert!((limit * 9 / 10..=limit).contains(&paced), "{shown:#}");
    }
    let text = metrics(&gateway);
    let tokens = r#"{provider="openai",model="tidal-1",dimension="tokens""#;
    let limit = format!(r#"tidegate_llm_limit{tokens},source="learned"}}"#);
    assert_eq!(sample(&text, &limit), 90_000.0);
    let reported = sample(&text, &format!("tidegate_llm_limit_reported_remaining{tokens}}}"));
    assert!((81_000.0..90_000.0).contains(&reported), "{text}");
    let used =
        sample(&text, r#"tidegate_llm_quota_used_ratio{provider="openai",dimension="tokens"}"#);
    assert!((0.0..0.1).contains(&used), "{text}");
}

/// The scrape after the rejection is the first one.
#[test]
fn exhausted_tokens_are_shown_at_the_first_scrape() {
    let account = Sdk::OPENAI
        .account()
        .any_model(Limits::new().tokens_per_minute(5_000))
        .charging(Charging::of(Dialect::OpenAi).keep_reserved())
        .reporting(Reporting::Never);
    let provider = Provider::start(account);
    let settings = "tokens_per_minute = 5000\nrequests_per_minute = 600\nmax_wait = \"1s\"";
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, settings);
    let caller = Caller::new(&gateway);
    // The second call would fit if it were slightly smaller.
    let options = CallOptions { max_tokens: Some(3_000), ..CallOptions::default() };
    let statuses = [(); 3].map(|()| caller.call(options).status);
    assert_eq!(statuses, [200, 429, 429].map(Some));
    let text = metrics(&gateway);
    let used = |dimension| {
        let labels = format!(r#"{{provider="openai",dimension="{dimension}"}}"#);
        sample(&text, &format!("tidegate_llm_quota_used_ratio{labels}"))
    };
    assert!(used("tokens") >= 0.99, "{text}");
    assert!(used("requests") < 0.5, "{text}");
    let provider = shown(&gateway);
    assert_eq!(provider["last_limited_by"], "tokens", "{provider:#}");
    let account = &provider["accounts"].as_array().unwrap()[1];
    let tokens = limit_on(&account["queues"][0]["limits"], "tokens");
    assert_eq!((&tokens["source"], &tokens["limit"]), (&"configured".into(), &5_000.into()));
    assert!(tokens["bucket"]["remaining"].as_i64().unwrap() < 3_000, "{tokens:#}");
    let limit = r#"tidegate_llm_limit{provider="openai",model="all",dimension="tokens",source="configured"}"#;
    assert_eq!(sample(&text, limit), 5_000.0);
}

#[test]
fn usage_falls_when_a_call_costs_less_than_reserved() {
    let account = Sdk::OPENAI
        .account()
        .any_model(Limits::new())
        .output(Output::fixed(10))
        .first_token(Delay::fixed(Duration::from_secs(3)));
    let provider = Provider::start(account);
    // Groq has OpenAI's API and refunds unused reservations.
    let settings = "dialect = \"groq\"\ntokens_per_minute = 10000";
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, settings);
    let ratio = || {
        let series = r#"tidegate_llm_quota_used_ratio{provider="openai",dimension="tokens"}"#;
        sample(&metrics(&gateway), series)
    };
    thread::scope(|scope| {
        let caller = Caller::new(&gateway);
        let options = CallOptions { max_tokens: Some(9_000), ..CallOptions::default() };
        let call = scope.spawn(move || caller.call(options).status);
        wait_until("the call reserves most of the minute", || (ratio() > 0.8).then_some(()));
        assert_eq!(call.join().unwrap(), Some(200));
    });
    wait_until("most of it is given back", || (ratio() < 0.2).then_some(()));
}

#[test]
fn hold_is_shown_with_its_cause_and_counts_down() {
    let pause = Fault::RateLimited { retry_after: Some(Duration::from_secs(40)) };
    let faults = Faults::new().on_calls(1..=u64::MAX, pause);
    let provider = Provider::start(Sdk::OPENAI.account().any_model(Limits::new()).faults(faults));
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "max_wait = \"1s\"");
    assert_eq!(Caller::new(&gateway).call(CallOptions::default()).status, Some(429));
    let hold = || {
        let provider = shown(&gateway);
        let accounts = provider["accounts"].as_array().unwrap();
        let account = accounts.iter().find(|account| account["owner"] == "caller").unwrap();
        account["queues"][0]["models"][0]["hold"].clone()
    };
    let first = hold();
    assert_eq!(first["cause"], "rate_limited", "{first}");
    let left = |hold: &Value| hold["remaining_ms"].as_u64().unwrap();
    assert!((20_000..=40_000).contains(&left(&first)), "{first}");
    let text = metrics(&gateway);
    assert_eq!(sample(&text, r#"tidegate_llm_holds{provider="openai"}"#), 1.0);
    let seconds = sample(&text, r#"tidegate_llm_hold_remaining_seconds{provider="openai"}"#);
    assert!((20.0..=40.0).contains(&seconds), "{text}");
    wait_until("it counts down", || (left(&hold()) < left(&first)).then_some(()));
}

#[test]
fn waiting_calls_are_shown_by_tenant_but_not_in_metrics() {
    let delay = Delay::fixed(Duration::from_secs(2));
    let account = Sdk::OPENAI.account().any_model(Limits::new()).first_token(delay);
    let provider = Provider::start(account);
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "max_concurrent_requests = 1");
    let in_state = |in_flight: u64, waiting: u64| {
        let shown = shown(&gateway);
        (shown["in_flight"] == in_flight && shown["waiting"] == waiting).then_some(shown)
    };
    thread::scope(|scope| {
        let call = |tenant| {
            let caller = Caller::new(&gateway);
            let options = CallOptions { tenant: Some(tenant), ..CallOptions::default() };
            scope.spawn(move || assert_eq!(caller.call(options).status, Some(200)))
        };
        call("team-a");
        wait_until("the first call is at the provider", || in_state(1, 0));
        let _others = ["team-c", "team-b", "team-b"].map(call);
        let shown = wait_until("three calls wait", || in_state(1, 3));
        let tenants: Vec<_> = shown["tenants"].as_array().unwrap().iter().collect();
        let names: Vec<_> = tenants.iter().map(|one| (&one["tenant"], &one["waiting"])).collect();
        assert_eq!(names, [(&"team-b".into(), &2.into()), (&"team-c".into(), &1.into())]);
        assert_eq!(
            (&shown["tenants_waiting"], &shown["waiting_of_other_tenants"]),
            (&2.into(), &0.into())
        );
        assert_eq!(
            (&shown["limited_by"], &shown["concurrency_limit"]),
            (&"concurrency".into(), &1.into())
        );
        let text = metrics(&gateway);
        let id = tenants[0]["id"].as_str().unwrap();
        let queue =
            format!(r#"tidegate_llm_tenant_queue_length{{provider="openai",tenant="{id}"}}"#);
        assert_eq!(sample(&text, &queue), 2.0);
        assert!(!text.contains("team-"), "{text}");
        assert_eq!(
            sample(&text, r#"tidegate_llm_concurrency_limit{provider="openai",reason="fixed"}"#),
            1.0
        );
    });
}

#[test]
fn configured_limits_are_shown_and_unknown_providers_rejected() {
    let provider = Provider::start(Sdk::OPENAI.account().any_model(Limits::new()));
    let settings = "requests_per_minute = 300\nrequests_per_day = 1000\ninput_tokens_per_minute = 7000\nmin_interval_ms = 100";
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, settings);
    let shown = shown(&gateway);
    let own = &shown["accounts"][0];
    assert_eq!(own["owner"], "own", "{shown:#}");
    let limits = &own["queues"][0]["limits"];
    let dimensions = [
        ("requests", 300),
        ("requests_per_day", 1_000),
        ("input_tokens", 7_000),
        ("min_interval", 1),
    ];
    for (dimension, amount) in dimensions {
        let limit = limit_on(limits, dimension);
        assert_eq!((&limit["source"], &limit["limit"]), (&"configured".into(), &amount.into()));
        assert_eq!((&limit["learned_from"], &limit["used_ratio"]), (&Value::Null, &0.0.into()));
    }
    assert_eq!(limit_on(limits, "min_interval")["window_ms"], 100);
    assert_eq!(limit_on(limits, "requests_per_day")["bucket"]["remaining"], 1_000);
    let (status, all) = gateway.ask("/admin/providers");
    let all: Value = serde_json::from_str(&all).unwrap();
    let mut names = all["providers"].as_array().unwrap().iter().map(|one| &one["provider"]);
    assert!(status == 200 && names.any(|name| name == "openai"), "{all:#}");
    let (status, problem) = gateway.ask("/admin/providers/nobody");
    assert!(status == 404 && problem.contains("known providers are"), "{status} {problem}");
}
