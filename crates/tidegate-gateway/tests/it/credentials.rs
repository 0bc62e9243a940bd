//! Which key is sent to which provider.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tidegate_gateway::Upstream;
use tidegate_providers::Dialect;

use crate::support::{Mode, chat_with_key, credential, gateway_to, send, upstream};
use crate::transport::{ReceivedRequest, ScriptedProvider};

const KEY_HEADERS: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

fn ok_provider() -> ScriptedProvider {
    ScriptedProvider::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))))
}

/// A request with a key in every place where one can be.
fn request_with_keys_everywhere(path: &str) -> Request<Full<Bytes>> {
    let request = KEY_HEADERS.iter().fold(Request::post(path), |request, name| {
        let value = if *name == "authorization" { "Bearer sk-caller" } else { "sk-caller" };
        request.header(*name, value)
    });
    request.body(Full::new(Bytes::from_static(b"{}"))).unwrap()
}

fn contains(got: &ReceivedRequest, credential: &str) -> bool {
    format!("{:?}{:?}{}", got.uri, got.headers, String::from_utf8_lossy(&got.body))
        .contains(credential)
        || got
            .headers
            .values()
            .any(|value| String::from_utf8_lossy(value.as_bytes()).contains(credential))
}

#[tokio::test(start_paused = true)]
async fn caller_keys_are_forwarded_unchanged() {
    let provider = ok_provider();
    let gateway = gateway_to(&provider, [upstream("gemini", Dialect::Gemini)]);
    send(
        &gateway,
        request_with_keys_everywhere("/gemini/v1/models/m:generateContent?key=sk-caller&alt=sse"),
    )
    .await;
    let got = &provider.requests()[0];
    assert_eq!(got.uri.query(), Some("key=sk-caller&alt=sse"));
    assert_eq!(got.headers["authorization"], "Bearer sk-caller");
    assert!(KEY_HEADERS[1..].iter().all(|name| got.headers[*name] == "sk-caller"));
}

#[tokio::test(start_paused = true)]
async fn a_configured_key_replaces_caller_keys() {
    for (name, dialect, field, value) in [
        ("openai", Dialect::OpenAi, "authorization", "Bearer sk-own"),
        ("anthropic", Dialect::Anthropic, "x-api-key", "sk-own"),
        ("gemini", Dialect::Gemini, "x-goog-api-key", "sk-own"),
        ("azure", Dialect::Azure, "api-key", "sk-own"),
    ] {
        let provider = ok_provider();
        let upstream = upstream(name, dialect).credential(credential("sk-own")).unwrap();
        let gateway = gateway_to(&provider, [upstream]);
        for path in ["/v1/chat/completions", "/v1/models/m:generateContent", "/v1/files"] {
            send(
                &gateway,
                request_with_keys_everywhere(&format!("/{name}{path}?key=sk-caller&a=b")),
            )
            .await;
        }
        for got in provider.requests() {
            assert_eq!(got.headers[field], value, "{name}");
            assert_eq!(got.uri.query(), Some("a=b"), "{name}");
            assert!(!contains(&got, "sk-caller"), "{name}: {got:?}");
        }
    }
}

/// Providers of which the one at `first.test` is down.
fn first_is_down() -> ScriptedProvider {
    ScriptedProvider::new(|_, got| {
        let status = if got.uri.host() == Some("first.test") { 500 } else { 200 };
        Response::builder().status(status).body(Full::new(Bytes::from_static(b"{}"))).unwrap()
    })
}

fn at(name: &str, dialect: Dialect) -> Upstream {
    Upstream::new(name, dialect, &format!("http://{name}.test")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn caller_keys_are_never_sent_to_a_fallback() {
    let provider = first_is_down();
    let first =
        at("first", Dialect::OpenAi).fallback(["keyless", "other", "second"]).max_retries(0);
    let upstreams = [
        first,
        at("keyless", Dialect::Groq),
        at("other", Dialect::Anthropic).credential(credential("sk-ant")).unwrap(),
        at("second", Dialect::Mistral).credential(credential("sk-second")).unwrap(),
    ];
    let gateway = gateway_to(&provider, upstreams);
    let mut request = chat_with_key("first", Mode::Single, "sk-caller");
    let target = "/first/v1/chat/completions?k%65y=sk-caller&alt=sse&session=sk-caller";
    *request.uri_mut() = target.parse().unwrap();
    for name in [
        "cookie",
        "ocp-apim-subscription-key",
        "openai-organization",
        "openai-project",
        "proxy-authorization",
        "x-anything",
    ] {
        request.headers_mut().insert(name, "sk-caller".parse().unwrap());
    }
    request.headers_mut().insert("x-stainless-lang", "python".parse().unwrap());
    let response = send(&gateway, request).await;
    assert_eq!(response.status, 200);
    assert_eq!(response.header("x-tidegate-provider"), "second");
    let got = provider.requests();
    let hosts: Vec<&str> = got.iter().map(|got| got.uri.host().unwrap()).collect();
    assert_eq!(
        hosts,
        ["first.test", "second.test"],
        "fallbacks without a configured key are skipped"
    );
    assert!(contains(&got[0], "sk-caller"));
    assert!(!contains(&got[1], "sk-caller"), "{:?}", got[1]);
    assert_eq!(got[1].headers["authorization"], "Bearer sk-second");
    assert_eq!(got[1].headers["content-type"], "application/json");
    assert_eq!(got[1].headers["x-stainless-lang"], "python");
    assert_eq!(got[1].uri.query(), Some("alt=sse"));
}

#[tokio::test(start_paused = true)]
async fn a_fallback_is_called_at_its_own_root() {
    for (name, dialect, uri) in [
        ("groq", Dialect::Groq, "http://groq.test/openai/v1/chat/completions"),
        ("router", Dialect::OpenRouter, "http://router.test/api/v1/chat/completions"),
        ("local", Dialect::Compatible, "http://local.test/v1/chat/completions"),
    ] {
        let provider = first_is_down();
        let other = match dialect {
            // A self-hosted server needs no key.
            Dialect::Compatible => at(name, dialect),
            _ => at(name, dialect).credential(credential("sk-own")).unwrap(),
        };
        let azure = at("azure", Dialect::Azure).credential(credential("sk-azure")).unwrap();
        let first = at("first", Dialect::OpenAi).fallback(["azure", name]).max_retries(0);
        let gateway = gateway_to(&provider, [first, azure, other]);
        let response = send(&gateway, chat_with_key("first", Mode::Single, "sk-caller")).await;
        assert_eq!((response.status.as_u16(), response.header("x-tidegate-provider")), (200, name));
        let got = provider.requests();
        assert_eq!((got.len(), got[1].uri.to_string().as_str()), (2, uri));
        assert!(!contains(&got[1], "sk-caller"));
    }
}

#[tokio::test(start_paused = true)]
async fn debug_output_contains_no_key() {
    let own = upstream("openai", Dialect::OpenAi).credential(credential("sk-own")).unwrap();
    let gateway = gateway_to(&ok_provider(), [own.clone()]);
    send(&gateway, chat_with_key("openai", Mode::Single, "sk-caller")).await;
    let printed = format!("{own:?} {gateway:?} {:?}", gateway.status());
    assert!(!printed.contains("sk-own") && !printed.contains("sk-caller"), "{printed}");
}
