//! What the gateway itself says, in the words of every provider.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Full;
use serde_json::json;

use crate::stage::{
    FAMILIES, Want, account, ask, chat, gateway, is_idle, per_minute, simulator, upstream,
};

fn with(
    mut request: Request<Full<Bytes>>,
    name: &'static str,
    value: &'static str,
) -> Request<Full<Bytes>> {
    let field = (HeaderName::from_static(name), HeaderValue::from_static(value));
    request.headers_mut().insert(field.0, field.1);
    request
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_is_refused_at_once_in_the_providers_words() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim));
        let gateway = gateway(&simulator, upstream(name, dialect).limits(per_minute(1)));
        assert_eq!(ask(&gateway, chat(name, Want::Whole)).await.status, 200);
        let refused =
            ask(&gateway, with(chat(name, Want::Stream), "x-tidegate-max-wait-ms", "500")).await;
        assert_eq!(refused.status, 429, "{name}");
        let millis = refused.number("retry-after-ms");
        assert!((59_000..=61_500).contains(&millis), "{name}: {millis}");
        assert_eq!(refused.number("retry-after"), millis.div_ceil(1_000));
        assert_eq!(refused.field("x-should-retry"), "", "the caller may come back");
        assert_eq!(refused.number("x-tidegate-attempts"), 0);
        let body = refused.json();
        let (place, names) = match name {
            "openai" => (
                &body["error"]["message"],
                body["error"]["code"] == "rate_limit_exceeded" && body["error"]["param"].is_null(),
            ),
            "anthropic" => (
                &body["error"]["message"],
                body["type"] == "error" && body["error"]["type"] == "rate_limit_error",
            ),
            "gemini" => (
                &body["error"]["message"],
                body["error"]["status"] == "RESOURCE_EXHAUSTED"
                    && body["error"]["code"] == 429
                    && body["error"]["details"][0]["retryDelay"].as_str().unwrap().ends_with('s'),
            ),
            _ => (&body["error"], true),
        };
        assert!(names, "{body}");
        let message = place.as_str().unwrap();
        assert!(message.starts_with("Tidegate refused") && !message.contains("river"), "{message}");
        assert_eq!(simulator.ledger().seen(), 1, "nothing was sent");
        assert!(is_idle(&gateway));
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_to_come_back_is_true() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, upstream(name, dialect).limits(per_minute(60)));
    ask(&gateway, chat(name, Want::Whole)).await;
    let request = || with(chat(name, Want::Whole), "x-tidegate-max-wait-ms", "0");
    let refused = ask(&gateway, request()).await;
    assert_eq!(refused.status, 429);
    let after = std::time::Duration::from_millis(refused.number("retry-after-ms"));
    tokio::time::sleep(after).await;
    assert_eq!(ask(&gateway, request()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_cannot_be_read_is_told() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim));
        let gateway = gateway(&simulator, upstream(name, dialect));
        for (field, value) in [
            ("x-tidegate-priority", "urgent"),
            ("x-tidegate-max-wait-ms", "1s"),
            ("x-tidegate-tenant", ""),
        ] {
            let refused = ask(&gateway, with(chat(name, Want::Whole), field, value)).await;
            assert_eq!(refused.status, 400, "{name} {field}");
            assert!(refused.body.windows(field.len()).any(|part| part == field.as_bytes()));
        }
        let fine = with(chat(name, Want::Whole), "x-tidegate-priority", "low");
        assert_eq!(ask(&gateway, fine).await.status, 200);
        assert_eq!(simulator.ledger().seen(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_not_there_is_a_502() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    simulator.refuse_connections(std::time::Duration::from_secs(3_600));
    let gateway = gateway(&simulator, upstream(name, dialect).max_retries(2));
    let answer = ask(&gateway, chat(name, Want::Whole)).await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.json()["error"]["code"], json!("provider_unreachable"));
    assert_eq!(answer.number("x-tidegate-attempts"), 3);
    assert_eq!(answer.field("x-should-retry"), "false", "we have tried for both");
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn a_websocket_is_refused_in_clear_words_and_an_offer_of_http_2_is_not() {
    let (name, dialect, sim) = FAMILIES[0];
    let gateway = gateway(&simulator(account(sim)), upstream(name, dialect));
    let refused = ask(&gateway, with(chat(name, Want::Whole), "upgrade", "WebSocket")).await;
    // Clients that can do without fall back to HTTP at once.
    assert_eq!(refused.status, 426);
    assert_eq!((refused.field("upgrade"), refused.field("connection")), ("HTTP/1.1", "upgrade"));
    assert_eq!(refused.json()["error"]["code"], json!("upgrade_not_supported"));
    let offered = ask(&gateway, with(chat(name, Want::Whole), "upgrade", "h2c")).await;
    assert_eq!(offered.status, 200);
}
