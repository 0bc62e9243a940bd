//! Retries and fallbacks.

use std::num::NonZeroU32;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tidegate_gateway::Upstream;
use tidegate_providers::Dialect;
use tidegate_sim::Fault;
use tokio::time::Instant;

use crate::support::{
    ACCOUNT, FAMILIES, Mode, SECOND, account, chat, credential, gateway, gateway_to, is_idle, send,
    simulator, upstream,
};
use crate::transport::ScriptedProvider;

fn response(status: u16, body: &'static str) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header("x-request-id", "req_1");
    response.body(Full::new(Bytes::from(body))).unwrap()
}

#[tokio::test(start_paused = true)]
async fn transient_failures_do_not_reach_the_caller() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim));
        let gateway = gateway(&simulator, upstream(name, dialect));
        for fault in [Fault::ServerError, Fault::Overloaded, Fault::Reset] {
            if (name, fault) == ("ollama", Fault::Overloaded) {
                // Ollama's 503 is not among the retried statuses.
                continue;
            }
            simulator.inject(ACCOUNT, fault, 2).unwrap();
            let response = send(&gateway, chat(name, Mode::Single)).await;
            assert_eq!(response.status, 200, "{name} {fault:?}");
            assert_eq!(response.number("x-tidegate-attempts"), 3, "{name} {fault:?}");
            assert!(response.number("x-tidegate-wait-ms") > 500, "retry delays count as waits");
        }
        assert!(is_idle(&gateway), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_rate_limit_is_respected() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, upstream(name, dialect));
    simulator.inject(ACCOUNT, Fault::RateLimited { retry_after: Some(SECOND * 7) }, 1).unwrap();
    let start = Instant::now();
    assert_eq!(send(&gateway, chat(name, Mode::Single)).await.status, 200);
    assert!((SECOND * 7..SECOND * 10).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_max_wait_is_refused_at_once() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, upstream(name, dialect));
    simulator.inject(ACCOUNT, Fault::RateLimited { retry_after: Some(SECOND * 30) }, 1).unwrap();
    let mut request = chat(name, Mode::Single);
    request.headers_mut().insert("x-tidegate-max-wait-ms", "5000".parse().unwrap());
    let start = Instant::now();
    let refused = send(&gateway, request).await;
    assert_eq!(refused.status, 429);
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    assert!(refused.number("retry-after") >= 30);
    assert_eq!(refused.header("x-tidegate-limited-by"), "");
}

#[tokio::test(start_paused = true)]
async fn a_persistent_error_is_forwarded_byte_for_byte() {
    let body = "{\"error\": {\"message\":\"down\" } }  ";
    let provider = ScriptedProvider::new(move |_, _| response(500, body));
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi).max_retries(2)]);
    let failed = send(&gateway, chat("openai", Mode::Single)).await;
    assert_eq!((failed.status.as_u16(), &failed.body[..]), (500, body.as_bytes()));
    assert_eq!(failed.header("x-request-id"), "req_1");
    assert_eq!(failed.header("x-should-retry"), "false");
    assert_eq!(failed.number("x-tidegate-attempts"), 3);
    let refused = ScriptedProvider::new(move |_, _| response(400, body));
    let gateway = gateway_to(&refused, [upstream("openai", Dialect::OpenAi)]);
    let failed = send(&gateway, chat("openai", Mode::Single)).await;
    assert_eq!((failed.status.as_u16(), failed.number("x-tidegate-attempts")), (400, 1));
    assert_eq!(failed.header("x-should-retry"), "false", "a retry would fail too");
}

#[tokio::test(start_paused = true)]
async fn a_truncated_error_has_no_content_length() {
    const MAX_KEPT: usize = 1 << 20;
    let provider = ScriptedProvider::new(|_, _| {
        let response = Response::builder().status(400).header("content-length", MAX_KEPT + 1);
        response.body(Full::new(Bytes::from(vec![b' '; MAX_KEPT + 1]))).unwrap()
    });
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi)]);
    let failed = send(&gateway, chat("openai", Mode::Single)).await;
    assert_eq!((failed.status.as_u16(), failed.body.len()), (400, MAX_KEPT));
    assert_eq!(failed.header("content-length"), "");
}

#[tokio::test(start_paused = true)]
async fn a_persistent_rate_limit_has_a_retry_after() {
    let body = r#"{"error":{"type":"requests","code":"rate_limit_exceeded",
        "message":"Please try again in 2.5s."}}"#;
    let provider = ScriptedProvider::new(move |_, _| response(429, body));
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi).max_retries(1)]);
    let failed = send(&gateway, chat("openai", Mode::Single)).await;
    assert_eq!((failed.status.as_u16(), &failed.body[..]), (429, body.as_bytes()));
    assert_eq!((failed.number("retry-after-ms"), failed.number("retry-after")), (2_500, 3));
}

#[tokio::test(start_paused = true)]
async fn a_stream_starting_with_an_error_falls_back() {
    let failing = "data: {\"error\":{\"message\":\"overloaded\",\"code\":503}}\n\n";
    let fine = "data: {\"choices\":[{\"delta\":{\"content\":\"Elbe\"}}]}\n\ndata: [DONE]\n\n";
    let provider = ScriptedProvider::new(move |_, got| {
        let body = if got.uri.host() == Some("a.test") { failing } else { fine };
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(Full::new(Bytes::from(body))).unwrap()
    });
    let at = |name: &str| {
        let upstream = Upstream::new(name, Dialect::Compatible, &format!("http://{name}.test"));
        upstream.unwrap().credential(credential("sk-own")).unwrap()
    };
    let gateway = gateway_to(&provider, [at("a").fallback(["b"]), at("b")]);
    let response = send(&gateway, chat("a", Mode::Stream)).await;
    assert_eq!(&response.body[..], fine.as_bytes());
    assert_eq!(response.header("x-tidegate-provider"), "b");
    assert_eq!(response.number("x-tidegate-attempts"), 2);
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn a_stream_always_starting_with_an_error_is_forwarded() {
    let failing = "data: {\"error\":{\"message\":\"overloaded\",\"code\":503}}\n\n";
    let provider = ScriptedProvider::new(move |_, _| {
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(Full::new(Bytes::from(failing))).unwrap()
    });
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi).max_retries(1)]);
    let response = send(&gateway, chat("openai", Mode::Stream)).await;
    assert_eq!((response.status.as_u16(), &response.body[..]), (200, failing.as_bytes()));
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_daily_quota_is_refused_at_once() {
    // Other dialects have no machine-readable error for it.
    for (name, dialect, sim) in [FAMILIES[0], FAMILIES[2]] {
        let simulator = simulator(account(sim));
        let gateway = gateway(&simulator, upstream(name, dialect));
        simulator.inject(ACCOUNT, Fault::DayQuota, 1).unwrap();
        let start = Instant::now();
        let first = send(&gateway, chat(name, Mode::Single)).await;
        let second = send(&gateway, chat(name, Mode::Single)).await;
        assert!(start.elapsed() < SECOND, "{name}: {:?}", start.elapsed());
        assert!(first.status.is_client_error(), "{name}");
        // The second caller may be a different one: it learns of the quota, but sees nothing of the
        // first response.
        assert_eq!(first.status, second.status, "{name}");
        let message = second.json()["error"]["message"].to_string();
        assert!(message.starts_with("\"Tidegate refused: a quota of "), "{name}: {message}");
        assert!(second.number("retry-after-ms") > 0, "{name}: the provider said when");
        assert_eq!(simulator.ledger().seen(), 1, "{name}: the second was not sent");
        assert_eq!(second.number("x-tidegate-attempts"), 0);
        for refused in [first, second] {
            assert_eq!(refused.header("x-should-retry"), "false", "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn permanent_failures_have_no_retry_hints() {
    let spent = r#"{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}"#;
    for (status, body) in [(429, spent), (401, "{}"), (403, "{}"), (413, "{}"), (400, "{}")] {
        let provider = ScriptedProvider::new(move |_, _| response(status, body));
        let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi)]);
        for _ in 0..2 {
            let failed = send(&gateway, chat("openai", Mode::Single)).await;
            assert_eq!(
                (failed.status.as_u16(), failed.header("x-should-retry")),
                (status, "false")
            );
            assert_eq!((failed.header("retry-after"), failed.header("retry-after-ms")), ("", ""));
        }
    }
}

/// Other callers learn why nothing is sent, but nothing about the call that opened the breaker.
#[tokio::test(start_paused = true)]
async fn last_failure_of_a_breaker_reveals_nothing_of_its_call() {
    let private = r#"{"error":{"message":"org-private","type":"type-private"}}"#;
    let provider = ScriptedProvider::new(move |_, _| {
        let response = Response::builder().status(500).header("x-request-id", "req-private");
        response.body(Full::new(Bytes::from(private))).unwrap()
    });
    let openai = upstream("openai", Dialect::OpenAi).max_retries(0);
    let gateway = gateway_to(&provider, [openai.breaker(NonZeroU32::MIN, SECOND * 60)]);
    assert_eq!(send(&gateway, chat("openai", Mode::Single)).await.status, 500);
    let refused = send(&gateway, chat("openai", Mode::Single)).await;
    assert_eq!(refused.status, 503);
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(text.contains("kept failing (last: openai answered 500)"), "{text}");
    assert!(!text.contains("private"), "{text}");
}

/// A body that cannot be scanned is not forwarded if a key is configured; otherwise it is.
#[tokio::test(start_paused = true)]
async fn an_undecodable_error_is_replaced_if_it_may_contain_the_key() {
    let provider = ScriptedProvider::new(|_, _| {
        let response = Response::builder().status(400).header("content-encoding", "rot13");
        response.body(Full::new(Bytes::from("fx-bja"))).unwrap()
    });
    let named = |name| upstream(name, Dialect::OpenAi);
    let own = named("own").credential(credential("sk-own-0123456789")).unwrap();
    let gateway = gateway_to(&provider, [own, named("brought")]);
    let brought = send(&gateway, chat("brought", Mode::Single)).await;
    assert_eq!((brought.header("content-encoding"), &brought.body[..]), ("rot13", &b"fx-bja"[..]));
    let own = send(&gateway, chat("own", Mode::Single)).await;
    assert_eq!((own.status.as_u16(), own.header("content-encoding")), (400, ""));
    assert_eq!(own.json()["error"]["type"], "invalid_request_error");
}

#[tokio::test(start_paused = true)]
async fn a_form_is_not_retried() {
    let provider = ScriptedProvider::new(|_, _| response(500, "{}"));
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi)]);
    let mut request = chat("openai", Mode::Single);
    let form = "multipart/form-data; boundary=x".parse().unwrap();
    request.headers_mut().insert("content-type", form);
    assert_eq!(send(&gateway, request).await.status, 500);
    assert_eq!(provider.requests().len(), 1);
}
