//! Trying again, and turning to others.

use std::num::NonZeroU32;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tidegate_gateway::Upstream;
use tidegate_providers::Dialect;
use tidegate_sim::Fault;
use tokio::time::Instant;

use crate::stage::{
    FAMILIES, LABEL, SECOND, Want, account, ask, chat, gateway, is_idle, scripted, secret,
    simulator, upstream,
};
use crate::wire::Script;

fn answer(status: u16, body: &'static str) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header("x-request-id", "req_1");
    response.body(Full::new(Bytes::from(body))).unwrap()
}

#[tokio::test(start_paused = true)]
async fn failures_that_time_heals_do_not_reach_the_caller() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim));
        let gateway = gateway(&simulator, upstream(name, dialect));
        for fault in [Fault::ServerError, Fault::Overloaded, Fault::Reset] {
            if (name, fault) == ("ollama", Fault::Overloaded) {
                // Its 503 is none of the statuses that are retried.
                continue;
            }
            simulator.inject(LABEL, fault, 2).unwrap();
            let answer = ask(&gateway, chat(name, Want::Whole)).await;
            assert_eq!(answer.status, 200, "{name} {fault:?}");
            assert_eq!(answer.number("x-tidegate-attempts"), 3, "{name} {fault:?}");
            assert!(answer.number("x-tidegate-wait-ms") > 500, "the delays count as waits");
        }
        assert!(is_idle(&gateway), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_waited_for_as_long_as_the_provider_says() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, upstream(name, dialect));
    simulator.inject(LABEL, Fault::RateLimited { retry_after: Some(SECOND * 7) }, 1).unwrap();
    let start = Instant::now();
    assert_eq!(ask(&gateway, chat(name, Want::Whole)).await.status, 200);
    assert!((SECOND * 7..SECOND * 10).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_is_longer_than_the_caller_waits_is_told_at_once() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, upstream(name, dialect));
    simulator.inject(LABEL, Fault::RateLimited { retry_after: Some(SECOND * 30) }, 1).unwrap();
    let mut request = chat(name, Want::Whole);
    request.headers_mut().insert("x-tidegate-max-wait-ms", "5000".parse().unwrap());
    let start = Instant::now();
    let refused = ask(&gateway, request).await;
    assert_eq!(refused.status, 429);
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    assert!(refused.number("retry-after") >= 30);
    assert_eq!(refused.field("x-tidegate-limited-by"), "");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_stays_is_the_providers_own_byte_for_byte() {
    let body = "{\"error\": {\"message\":\"down\" } }  ";
    let script = Script::new(move |_, _| answer(500, body));
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi).max_retries(2)]);
    let failed = ask(&gateway, chat("openai", Want::Whole)).await;
    assert_eq!((failed.status.as_u16(), &failed.body[..]), (500, body.as_bytes()));
    assert_eq!(failed.field("x-request-id"), "req_1");
    assert_eq!(failed.field("x-should-retry"), "false");
    assert_eq!(failed.number("x-tidegate-attempts"), 3);
    let refused = Script::new(move |_, _| answer(400, body));
    let gateway = scripted(&refused, [upstream("openai", Dialect::OpenAi)]);
    let failed = ask(&gateway, chat("openai", Want::Whole)).await;
    assert_eq!((failed.status.as_u16(), failed.number("x-tidegate-attempts")), (400, 1));
    assert_eq!(failed.field("x-should-retry"), "false", "nothing will change");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_which_only_the_beginning_is_kept_does_not_announce_the_rest() {
    const KEPT: usize = 1 << 20;
    let script = Script::new(|_, _| {
        let response = Response::builder().status(400).header("content-length", KEPT + 1);
        response.body(Full::new(Bytes::from(vec![b' '; KEPT + 1]))).unwrap()
    });
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi)]);
    let failed = ask(&gateway, chat("openai", Want::Whole)).await;
    assert_eq!((failed.status.as_u16(), failed.body.len()), (400, KEPT));
    assert_eq!(failed.field("content-length"), "");
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_that_stays_has_a_time_to_come_back() {
    let body = r#"{"error":{"type":"requests","code":"rate_limit_exceeded",
        "message":"Please try again in 2.5s."}}"#;
    let script = Script::new(move |_, _| answer(429, body));
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi).max_retries(1)]);
    let failed = ask(&gateway, chat("openai", Want::Whole)).await;
    assert_eq!((failed.status.as_u16(), &failed.body[..]), (429, body.as_bytes()));
    assert_eq!((failed.number("retry-after-ms"), failed.number("retry-after")), (2_500, 3));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_begins_with_an_error_falls_back_before_the_first_byte() {
    let failing = "data: {\"error\":{\"message\":\"overloaded\",\"code\":503}}\n\n";
    let fine = "data: {\"choices\":[{\"delta\":{\"content\":\"Elbe\"}}]}\n\ndata: [DONE]\n\n";
    let script = Script::new(move |_, got| {
        let body = if got.uri.host() == Some("a.test") { failing } else { fine };
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(Full::new(Bytes::from(body))).unwrap()
    });
    let at = |name: &str| {
        let upstream = Upstream::new(name, Dialect::Compatible, &format!("http://{name}.test"));
        upstream.unwrap().credential(secret("sk-own")).unwrap()
    };
    let gateway = scripted(&script, [at("a").fallback(["b"]), at("b")]);
    let answer = ask(&gateway, chat("a", Want::Stream)).await;
    assert_eq!(&answer.body[..], fine.as_bytes());
    assert_eq!(answer.field("x-tidegate-provider"), "b");
    assert_eq!(answer.number("x-tidegate-attempts"), 2);
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_only_ever_begins_with_an_error_is_passed_on() {
    let failing = "data: {\"error\":{\"message\":\"overloaded\",\"code\":503}}\n\n";
    let script = Script::new(move |_, _| {
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(Full::new(Bytes::from(failing))).unwrap()
    });
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi).max_retries(1)]);
    let answer = ask(&gateway, chat("openai", Want::Stream)).await;
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, failing.as_bytes()));
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_the_day_is_told_at_once_and_nobody_hangs() {
    // Others have no words for it that a program could read.
    for (name, dialect, sim) in [FAMILIES[0], FAMILIES[2]] {
        let simulator = simulator(account(sim));
        let gateway = gateway(&simulator, upstream(name, dialect));
        simulator.inject(LABEL, Fault::DayQuota, 1).unwrap();
        let start = Instant::now();
        let first = ask(&gateway, chat(name, Want::Whole)).await;
        let second = ask(&gateway, chat(name, Want::Whole)).await;
        assert!(start.elapsed() < SECOND, "{name}: {:?}", start.elapsed());
        assert!(first.status.is_client_error(), "{name}");
        // The second caller may be another one: it learns of the quota, and no word of the first.
        assert_eq!(first.status, second.status, "{name}");
        let told = second.json()["error"]["message"].to_string();
        assert!(told.starts_with("\"Tidegate refused: a quota of "), "{name}: {told}");
        assert!(second.number("retry-after-ms") > 0, "{name}: the provider said when");
        assert_eq!(simulator.ledger().seen(), 1, "{name}: the second was not sent");
        assert_eq!(second.number("x-tidegate-attempts"), 0);
        for told in [first, second] {
            assert_eq!(told.field("x-should-retry"), "false", "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_heal_is_not_to_be_tried_again_and_has_no_time_of_ours() {
    let spent = r#"{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}"#;
    for (status, body) in [(429, spent), (401, "{}"), (403, "{}"), (413, "{}"), (400, "{}")] {
        let script = Script::new(move |_, _| answer(status, body));
        let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi)]);
        for _ in 0..2 {
            let failed = ask(&gateway, chat("openai", Want::Whole)).await;
            assert_eq!((failed.status.as_u16(), failed.field("x-should-retry")), (status, "false"));
            assert_eq!((failed.field("retry-after"), failed.field("retry-after-ms")), ("", ""));
        }
    }
}

/// Others learn why nothing is sent, and nothing of the call that opened the breaker.
#[tokio::test(start_paused = true)]
async fn the_last_failure_of_a_breaker_has_nothing_of_another_call() {
    let private = r#"{"error":{"message":"org-private","type":"type-private"}}"#;
    let script = Script::new(move |_, _| {
        let response = Response::builder().status(500).header("x-request-id", "req-private");
        response.body(Full::new(Bytes::from(private))).unwrap()
    });
    let openai = upstream("openai", Dialect::OpenAi).max_retries(0);
    let gateway = scripted(&script, [openai.breaker(NonZeroU32::MIN, SECOND * 60)]);
    assert_eq!(ask(&gateway, chat("openai", Want::Whole)).await.status, 500);
    let refused = ask(&gateway, chat("openai", Want::Whole)).await;
    assert_eq!(refused.status, 503);
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(text.contains("kept failing (last: openai answered 500)"), "{text}");
    assert!(!text.contains("private"), "{text}");
}

/// What cannot be looked through is not passed on beside a key of ours, and else is.
#[tokio::test(start_paused = true)]
async fn an_error_in_an_unknown_content_coding_is_replaced_where_it_may_show_the_key() {
    let script = Script::new(|_, _| {
        let response = Response::builder().status(400).header("content-encoding", "rot13");
        response.body(Full::new(Bytes::from("fx-bja"))).unwrap()
    });
    let named = |name| upstream(name, Dialect::OpenAi);
    let own = named("own").credential(secret("sk-own-0123456789")).unwrap();
    let gateway = scripted(&script, [own, named("brought")]);
    let brought = ask(&gateway, chat("brought", Want::Whole)).await;
    assert_eq!((brought.field("content-encoding"), &brought.body[..]), ("rot13", &b"fx-bja"[..]));
    let own = ask(&gateway, chat("own", Want::Whole)).await;
    assert_eq!((own.status.as_u16(), own.field("content-encoding")), (400, ""));
    assert_eq!(own.json()["error"]["type"], "invalid_request_error");
}

#[tokio::test(start_paused = true)]
async fn a_form_is_sent_once() {
    let script = Script::new(|_, _| answer(500, "{}"));
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi)]);
    let mut request = chat("openai", Want::Whole);
    let form = "multipart/form-data; boundary=x".parse().unwrap();
    request.headers_mut().insert("content-type", form);
    assert_eq!(ask(&gateway, request).await.status, 500);
    assert_eq!(script.got().len(), 1);
}
