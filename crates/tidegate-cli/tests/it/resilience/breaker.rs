//! R397: a circuit breaker stops calls to a failing provider and recovers gradually.

use std::net::TcpListener;

use serde_json::json;
use tidegate_testkit::launch::wait_until;

use super::upstream::{CALL, Gateway, STATUS, Upstream};

const PATH: &str = "/openai/v1/chat/completions";

fn file(url: &str, more: &str) -> String {
    format!(
        "[providers.openai]\nbase_url = \"{url}\"\nmax_retries = 0\nbreaker_failures = 3\n\
         breaker_open_for = \"1s\"\n{more}\n"
    )
}

fn state(name: &str) -> String {
    format!("tidegate_llm_breaker_state{{provider=\"openai\",state=\"{name}\"}} 1")
}

/// Setting: providers.*.breaker_failures, providers.*.breaker_open_for
#[test]
fn breaker_rejects_calls_until_the_provider_recovers() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&file(&upstream.url, ""));
    assert!(gateway.shows(&state("closed")));
    // Three models, so that the provider is considered failing, not a single model.
    for model in ["a", "b", "c"] {
        assert_eq!(gateway.call(PATH, model, &[(STATUS, "500"), (CALL, "failing")]).status, 500);
    }
    assert!(gateway.shows(&state("open")));
    let refused = gateway.call(PATH, "d", &[(CALL, "refused")]);
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.body["error"]["code"], "provider_unavailable", "{refused:?}");
    let message = refused.body["error"]["message"].as_str().unwrap();
    let begin = "Tidegate refused: calls to openai kept failing (last: openai answered 500";
    assert!(message.starts_with(begin), "{message}");
    assert_eq!(refused.number("retry-after"), 1);
    assert!(refused.number("retry-after-ms") <= 1_000);
    assert_eq!(refused.number("x-tidegate-attempts"), 0);
    assert_eq!((upstream.attempts("failing"), upstream.attempts("refused")), (3, 0));
    wait_until("a trial is due", || gateway.shows(&state("half_open")).then_some(()));
    for _ in 0..5 {
        assert_eq!(gateway.call(PATH, "d", &[(CALL, "back")]).status, 200);
    }
    assert!(gateway.shows(&state("closed")));
    assert!(gateway.shows(r#"tidegate_llm_breaker_opened_total{provider="openai"} 1"#));
    let refusals =
        r#"tidegate_llm_requests_total{provider="openai",model="other",outcome="breaker_open"} 1"#;
    assert!(gateway.shows(refusals));
    let log = gateway.stop().stderr;
    let told = ["breaker opened", "breaker half-open", "breaker closed"];
    assert!(told.iter().all(|line| log.matches(line).count() == 1), "{log}");
}

#[test]
fn breaker_can_open_for_a_single_model() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&file(&upstream.url, ""));
    for _ in 0..3 {
        assert_eq!(gateway.call(PATH, "broken", &[(STATUS, "500")]).status, 500);
    }
    assert_eq!(gateway.call(PATH, "broken", &[]).status, 503);
    assert_eq!(gateway.call(PATH, "fine", &[]).status, 200);
    assert!(gateway.shows(r#"tidegate_llm_breaker_open_models{provider="openai"} 1"#));
}

#[test]
fn client_errors_do_not_open_the_breaker() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&file(&upstream.url, ""));
    for status in ["400", "401", "403", "404", "409", "413", "422"] {
        for call in ["a", "b", "c", "d"] {
            let reply = gateway.call(PATH, status, &[(STATUS, status), (CALL, call)]);
            assert_eq!(reply.status.to_string(), status, "{reply:?}");
        }
    }
    assert!(gateway.shows(&state("closed")));
}

#[test]
fn open_breaker_sends_calls_to_the_fallback_immediately() {
    let upstream = Upstream::start();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let other = format!(
        "fallback = [\"other\"]\n[providers.other]\ndialect = \"compatible\"\nbase_url = \"{}\"",
        upstream.url
    );
    let gateway = Gateway::start(&file(&format!("http://{nobody}"), &other));
    for _ in 0..3 {
        let reply = gateway.call(PATH, "a", &[]);
        assert_eq!((reply.status, reply.number("x-tidegate-attempts")), (200, 2), "{reply:?}");
    }
    let reply = gateway.call(PATH, "b", &[]);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.number("x-tidegate-attempts"), 1, "only the fallback was called");
}

/// Setting: providers.*.breaker
#[test]
fn breaker_can_be_disabled_while_open() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&file(&upstream.url, "").replace("\"1s\"", "\"1h\""));
    for _ in 0..3 {
        gateway.call(PATH, "a", &[(STATUS, "503")]);
    }
    assert_eq!(gateway.call(PATH, "a", &[]).status, 503);
    gateway.change(&json!({ "providers": { "openai": { "breaker": false } } }));
    assert_eq!(gateway.call(PATH, "a", &[]).status, 200);
    for _ in 0..5 {
        assert_eq!(gateway.call(PATH, "a", &[(STATUS, "500")]).status, 500);
    }
    assert!(gateway.shows(&state("closed")));
}
