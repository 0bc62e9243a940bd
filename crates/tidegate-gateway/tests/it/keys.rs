//! Whose key goes where.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tidegate_gateway::Upstream;
use tidegate_providers::Dialect;

use crate::stage::{Want, ask, chat_as, scripted, secret, upstream};
use crate::wire::{Got, Script};

const FIELDS: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

fn fine() -> Script {
    Script::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))))
}

/// A request with a key wherever one can be.
fn everywhere(path: &str) -> Request<Full<Bytes>> {
    let request = FIELDS.iter().fold(Request::post(path), |request, name| {
        let value = if *name == "authorization" { "Bearer sk-caller" } else { "sk-caller" };
        request.header(*name, value)
    });
    request.body(Full::new(Bytes::from_static(b"{}"))).unwrap()
}

fn says(got: &Got, secret: &str) -> bool {
    format!("{:?}{:?}{}", got.uri, got.fields, String::from_utf8_lossy(&got.body)).contains(secret)
        || got
            .fields
            .values()
            .any(|value| String::from_utf8_lossy(value.as_bytes()).contains(secret))
}

#[tokio::test(start_paused = true)]
async fn a_callers_key_passes_untouched() {
    let script = fine();
    let gateway = scripted(&script, [upstream("gemini", Dialect::Gemini)]);
    ask(&gateway, everywhere("/gemini/v1/models/m:generateContent?key=sk-caller&alt=sse")).await;
    let got = &script.got()[0];
    assert_eq!(got.uri.query(), Some("key=sk-caller&alt=sse"));
    assert_eq!(got.fields["authorization"], "Bearer sk-caller");
    assert!(FIELDS[1..].iter().all(|name| got.fields[*name] == "sk-caller"));
}

#[tokio::test(start_paused = true)]
async fn a_configured_key_replaces_whatever_the_caller_sent() {
    for (name, dialect, field, value) in [
        ("openai", Dialect::OpenAi, "authorization", "Bearer sk-own"),
        ("anthropic", Dialect::Anthropic, "x-api-key", "sk-own"),
        ("gemini", Dialect::Gemini, "x-goog-api-key", "sk-own"),
        ("azure", Dialect::Azure, "api-key", "sk-own"),
    ] {
        let script = fine();
        let upstream = upstream(name, dialect).credential(secret("sk-own")).unwrap();
        let gateway = scripted(&script, [upstream]);
        for path in ["/v1/chat/completions", "/v1/models/m:generateContent", "/v1/files"] {
            ask(&gateway, everywhere(&format!("/{name}{path}?key=sk-caller&a=b"))).await;
        }
        for got in script.got() {
            assert_eq!(got.fields[field], value, "{name}");
            assert_eq!(got.uri.query(), Some("a=b"), "{name}");
            assert!(!says(&got, "sk-caller"), "{name}: {got:?}");
        }
    }
}

/// Providers of which the first is down.
fn first_is_down() -> Script {
    Script::new(|_, got| {
        let status = if got.uri.host() == Some("first.test") { 500 } else { 200 };
        Response::builder().status(status).body(Full::new(Bytes::from_static(b"{}"))).unwrap()
    })
}

fn at(name: &str, dialect: Dialect) -> Upstream {
    Upstream::new(name, dialect, &format!("http://{name}.test")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_callers_key_is_never_shown_to_a_fallback() {
    let script = first_is_down();
    let first =
        at("first", Dialect::OpenAi).fallback(["keyless", "other", "second"]).max_retries(0);
    let upstreams = [
        first,
        at("keyless", Dialect::Groq),
        at("other", Dialect::Anthropic).credential(secret("sk-ant")).unwrap(),
        at("second", Dialect::Mistral).credential(secret("sk-second")).unwrap(),
    ];
    let gateway = scripted(&script, upstreams);
    let mut request = chat_as("first", Want::Whole, "sk-caller");
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
    let answer = ask(&gateway, request).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("x-tidegate-provider"), "second");
    let got = script.got();
    let hosts: Vec<&str> = got.iter().map(|got| got.uri.host().unwrap()).collect();
    assert_eq!(hosts, ["first.test", "second.test"], "those without a key of their own are no use");
    assert!(says(&got[0], "sk-caller"));
    assert!(!says(&got[1], "sk-caller"), "{:?}", got[1]);
    assert_eq!(got[1].fields["authorization"], "Bearer sk-second");
    assert_eq!(got[1].fields["content-type"], "application/json");
    assert_eq!(got[1].fields["x-stainless-lang"], "python");
    assert_eq!(got[1].uri.query(), Some("alt=sse"));
}

#[tokio::test(start_paused = true)]
async fn a_fallback_is_asked_where_its_api_is() {
    for (name, dialect, uri) in [
        ("groq", Dialect::Groq, "http://groq.test/openai/v1/chat/completions"),
        ("router", Dialect::OpenRouter, "http://router.test/api/v1/chat/completions"),
        ("local", Dialect::Compatible, "http://local.test/v1/chat/completions"),
    ] {
        let script = first_is_down();
        let other = match dialect {
            // A server of one's own needs no key.
            Dialect::Compatible => at(name, dialect),
            _ => at(name, dialect).credential(secret("sk-own")).unwrap(),
        };
        let azure = at("azure", Dialect::Azure).credential(secret("sk-azure")).unwrap();
        let first = at("first", Dialect::OpenAi).fallback(["azure", name]).max_retries(0);
        let gateway = scripted(&script, [first, azure, other]);
        let answer = ask(&gateway, chat_as("first", Want::Whole, "sk-caller")).await;
        assert_eq!((answer.status.as_u16(), answer.field("x-tidegate-provider")), (200, name));
        let got = script.got();
        assert_eq!((got.len(), got[1].uri.to_string().as_str()), (2, uri));
        assert!(!says(&got[1], "sk-caller"));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_that_can_be_printed_shows_a_key() {
    let own = upstream("openai", Dialect::OpenAi).credential(secret("sk-own")).unwrap();
    let gateway = scripted(&fine(), [own.clone()]);
    ask(&gateway, chat_as("openai", Want::Whole, "sk-caller")).await;
    let shown = format!("{own:?} {gateway:?} {:?}", gateway.status());
    assert!(!shown.contains("sk-own") && !shown.contains("sk-caller"), "{shown}");
}
