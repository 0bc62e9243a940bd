//! Which requests are calls, and how often those are sent whose meaning is not known.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use tidegate_gateway::Upstream;
use tidegate_providers::{Dialect, Endpoint};

use crate::stage::{Want, ask, chat, is_idle, per_minute, scripted, secret, upstream};
use crate::wire::Script;

fn openai() -> Upstream {
    upstream("openai", Dialect::OpenAi)
}

fn request(method: &Method, path: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(format!("/openai{path}"))
        .header("content-type", "application/json")
        .header("content-length", body.len())
        .header("x-tidegate-max-wait-ms", 60_000)
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap()
}

/// A provider that answers with these statuses, one after the other.
fn says(statuses: &'static [u16]) -> Script {
    Script::new(move |number, _| {
        let status = statuses.get(number).or(statuses.last()).unwrap();
        Response::builder().status(*status).body(Full::new(Bytes::from_static(b"{}"))).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn a_request_of_unknown_meaning_is_sent_again_only_if_it_was_refused() {
    let body = r#"{"model":"m","input":"hello"}"#;
    for (method, path, statuses, status, sent) in [
        (Method::POST, "/v1/unknown", &[429, 429, 200][..], 200, 3),
        (Method::POST, "/v1/unknown", &[500, 200], 500, 1),
        (Method::POST, "/v1/unknown", &[429, 503, 200], 503, 2),
        (Method::PUT, "/v1/chat/completions", &[500, 200], 500, 1),
        (Method::DELETE, "/v1/unknown", &[500, 200], 500, 1),
        (Method::POST, "/v1/chat/completions", &[500, 200], 200, 2),
    ] {
        let script = says(statuses);
        let gateway = scripted(&script, [openai()]);
        let answer = ask(&gateway, request(&method, path, body)).await;
        assert_eq!(
            (answer.status.as_u16(), script.got().len()),
            (status, sent),
            "{method} {path} {statuses:?}"
        );
        assert!(is_idle(&gateway));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_of_unknown_meaning_does_not_fall_back() {
    let script = says(&[500]);
    let at = |name: &str| {
        let upstream = Upstream::new(name, Dialect::OpenAi, &format!("http://{name}.test"));
        upstream.unwrap().credential(secret("sk-own")).unwrap()
    };
    let gateway = scripted(&script, [at("openai").fallback(["other"]), at("other")]);
    let answer = ask(&gateway, request(&Method::POST, "/v1/unknown", "{}")).await;
    assert_eq!(answer.status, 500);
    assert!(script.got().iter().all(|got| got.uri.host() == Some("openai.test")));
}

#[tokio::test(start_paused = true)]
async fn what_is_free_takes_no_permit() {
    let script = says(&[200]);
    let gateway = scripted(&script, [openai().limits(per_minute(1))]);
    assert_eq!(ask(&gateway, chat("openai", Want::Whole)).await.status, 200);
    for (method, path) in [
        (Method::GET, "/v1/models"),
        (Method::OPTIONS, "/v1/chat/completions"),
        (Method::DELETE, "/v1/files/file-1"),
        (Method::POST, "/v1/responses/resp_1/cancel"),
    ] {
        let mut request = request(&method, path, "");
        request.headers_mut().insert("x-tidegate-max-wait-ms", 0.into());
        assert_eq!(ask(&gateway, request).await.status, 200, "{method} {path}");
    }
    assert_eq!(script.got().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn reading_with_a_body_takes_a_permit() {
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        let script = says(&[200]);
        let gateway = scripted(&script, [openai().limits(per_minute(1))]);
        let mut statuses = Vec::new();
        for _ in 0..2 {
            let mut request = request(&method, "/v1/models", r#"{"prompt":"hello"}"#);
            request.headers_mut().insert("x-tidegate-max-wait-ms", 0.into());
            statuses.push(ask(&gateway, request).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 429], "{method}");
        assert_eq!(script.got()[0].body, r#"{"prompt":"hello"}"#);
    }
}

#[tokio::test(start_paused = true)]
async fn paths_that_are_not_known_have_limits_of_their_own() {
    let script = says(&[200]);
    let limited = openai().endpoint(Endpoint::new("other"), per_minute(1));
    let gateway = scripted(&script, [limited]);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let mut request = request(&Method::POST, "/v1/unknown", "{}");
        request.headers_mut().insert("x-tidegate-max-wait-ms", 0.into());
        statuses.push(ask(&gateway, request).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 429]);
    assert_eq!(ask(&gateway, chat("openai", Want::Whole)).await.status, 200);
}
