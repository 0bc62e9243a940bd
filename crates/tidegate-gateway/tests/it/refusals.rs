//! Errors of the gateway itself, in the format of every dialect.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Full;
use serde_json::json;

use crate::support::{
    FAMILIES, Mode, account, chat, gateway, is_idle, per_minute, send, simulator, upstream,
};

fn with_header(
    mut request: Request<Full<Bytes>>,
    name: &'static str,
    value: &'static str,
) -> Request<Full<Bytes>> {
    let header = (HeaderName::from_static(name), HeaderValue::from_static(value));
    request.headers_mut().insert(header.0, header.1);
    request
}

#[tokio::test(start_paused = true)]
async fn too_long_waits_are_refused_in_the_provider_format() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim));
        let gateway = gateway(&simulator, upstream(name, dialect).limits(per_minute(1)));
        assert_eq!(send(&gateway, chat(name, Mode::Single)).await.status, 200);
        let refused =
            send(&gateway, with_header(chat(name, Mode::Stream), "x-tidegate-max-wait-ms", "500"))
                .await;
        assert_eq!(refused.status, 429, "{name}");
        let millis = refused.number("retry-after-ms");
        assert!((59_000..=61_500).contains(&millis), "{name}: {millis}");
        assert_eq!(refused.number("retry-after"), millis.div_ceil(1_000));
        assert_eq!(refused.header("x-should-retry"), "", "the caller may retry");
        assert_eq!(refused.number("x-tidegate-attempts"), 0);
        let body = refused.json();
        let (message_value, has_provider_fields) = match name {
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
        assert!(has_provider_fields, "{body}");
        let message = message_value.as_str().unwrap();
        assert!(message.starts_with("Tidegate refused") && !message.contains("river"), "{message}");
        assert_eq!(simulator.ledger().seen(), 1, "nothing was sent");
        assert!(is_idle(&gateway));
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_accurate() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, upstream(name, dialect).limits(per_minute(60)));
    send(&gateway, chat(name, Mode::Single)).await;
    let request = || with_header(chat(name, Mode::Single), "x-tidegate-max-wait-ms", "0");
    let refused = send(&gateway, request()).await;
    assert_eq!(refused.status, 429);
    let after = std::time::Duration::from_millis(refused.number("retry-after-ms"));
    tokio::time::sleep(after).await;
    assert_eq!(send(&gateway, request()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn invalid_options_are_reported() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim));
        let gateway = gateway(&simulator, upstream(name, dialect));
        for (header, value) in [
            ("x-tidegate-priority", "urgent"),
            ("x-tidegate-max-wait-ms", "1s"),
            ("x-tidegate-tenant", ""),
        ] {
            let refused =
                send(&gateway, with_header(chat(name, Mode::Single), header, value)).await;
            assert_eq!(refused.status, 400, "{name} {header}");
            assert!(refused.body.windows(header.len()).any(|part| part == header.as_bytes()));
        }
        let valid = with_header(chat(name, Mode::Single), "x-tidegate-priority", "low");
        assert_eq!(send(&gateway, valid).await.status, 200);
        assert_eq!(simulator.ledger().seen(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_provider_is_a_502() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    simulator.refuse_connections(std::time::Duration::from_secs(3_600));
    let gateway = gateway(&simulator, upstream(name, dialect).max_retries(2));
    let response = send(&gateway, chat(name, Mode::Single)).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["error"]["code"], json!("provider_unreachable"));
    assert_eq!(response.number("x-tidegate-attempts"), 3);
    assert_eq!(response.header("x-should-retry"), "false", "the gateway already retried");
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn websocket_upgrades_are_refused_and_h2c_is_ignored() {
    let (name, dialect, sim) = FAMILIES[0];
    let gateway = gateway(&simulator(account(sim)), upstream(name, dialect));
    let refused =
        send(&gateway, with_header(chat(name, Mode::Single), "upgrade", "WebSocket")).await;
    // Clients that do not need WebSocket fall back to HTTP at once.
    assert_eq!(refused.status, 426);
    assert_eq!((refused.header("upgrade"), refused.header("connection")), ("HTTP/1.1", "upgrade"));
    assert_eq!(refused.json()["error"]["code"], json!("upgrade_not_supported"));
    let allowed = send(&gateway, with_header(chat(name, Mode::Single), "upgrade", "h2c")).await;
    assert_eq!(allowed.status, 200);
}
