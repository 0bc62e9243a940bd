//! Which requests take a permit, and how often requests of unknown purpose are sent.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use tidegate_gateway::Upstream;
use tidegate_providers::{Dialect, Endpoint};

use crate::support::{Mode, chat, credential, gateway_to, is_idle, per_minute, send, upstream};
use crate::transport::ScriptedProvider;

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

/// A provider that responds with these statuses in order.
fn provider_with_statuses(statuses: &'static [u16]) -> ScriptedProvider {
    ScriptedProvider::new(move |number, _| {
        let status = statuses.get(number).or(statuses.last()).unwrap();
        Response::builder().status(*status).body(Full::new(Bytes::from_static(b"{}"))).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn unknown_requests_are_resent_only_if_not_processed() {
    let body = r#"{"model":"m","input":"hello"}"#;
    for (method, path, statuses, status, attempts) in [
        (Method::POST, "/v1/unknown", &[429, 429, 200][..], 200, 3),
        (Method::POST, "/v1/unknown", &[500, 200], 500, 1),
        (Method::POST, "/v1/unknown", &[429, 503, 200], 503, 2),
        (Method::PUT, "/v1/chat/completions", &[500, 200], 500, 1),
        (Method::DELETE, "/v1/unknown", &[500, 200], 500, 1),
        (Method::POST, "/v1/chat/completions", &[500, 200], 200, 2),
    ] {
        let provider = provider_with_statuses(statuses);
        let gateway = gateway_to(&provider, [openai()]);
        let response = send(&gateway, request(&method, path, body)).await;
        assert_eq!(
            (response.status.as_u16(), provider.requests().len()),
            (status, attempts),
            "{method} {path} {statuses:?}"
        );
        assert!(is_idle(&gateway));
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_requests_do_not_fall_back() {
    let provider = provider_with_statuses(&[500]);
    let at = |name: &str| {
        let upstream = Upstream::new(name, Dialect::OpenAi, &format!("http://{name}.test"));
        upstream.unwrap().credential(credential("sk-own")).unwrap()
    };
    let gateway = gateway_to(&provider, [at("openai").fallback(["other"]), at("other")]);
    let response = send(&gateway, request(&Method::POST, "/v1/unknown", "{}")).await;
    assert_eq!(response.status, 500);
    assert!(provider.requests().iter().all(|got| got.uri.host() == Some("openai.test")));
}

#[tokio::test(start_paused = true)]
async fn free_requests_take_no_permit() {
    let provider = provider_with_statuses(&[200]);
    let gateway = gateway_to(&provider, [openai().limits(per_minute(1))]);
    assert_eq!(send(&gateway, chat("openai", Mode::Single)).await.status, 200);
    for (method, path) in [
        (Method::GET, "/v1/models"),
        (Method::OPTIONS, "/v1/chat/completions"),
        (Method::DELETE, "/v1/files/file-1"),
        (Method::POST, "/v1/responses/resp_1/cancel"),
    ] {
        let mut request = request(&method, path, "");
        request.headers_mut().insert("x-tidegate-max-wait-ms", 0.into());
        assert_eq!(send(&gateway, request).await.status, 200, "{method} {path}");
    }
    assert_eq!(provider.requests().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn read_requests_with_a_body_take_a_permit() {
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        let provider = provider_with_statuses(&[200]);
        let gateway = gateway_to(&provider, [openai().limits(per_minute(1))]);
        let mut statuses = Vec::new();
        for _ in 0..2 {
            let mut request = request(&method, "/v1/models", r#"{"prompt":"hello"}"#);
            request.headers_mut().insert("x-tidegate-max-wait-ms", 0.into());
            statuses.push(send(&gateway, request).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 429], "{method}");
        assert_eq!(provider.requests()[0].body, r#"{"prompt":"hello"}"#);
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_have_their_own_limits() {
    let provider = provider_with_statuses(&[200]);
    let limited = openai().endpoint(Endpoint::new("other"), per_minute(1));
    let gateway = gateway_to(&provider, [limited]);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let mut request = request(&Method::POST, "/v1/unknown", "{}");
        request.headers_mut().insert("x-tidegate-max-wait-ms", 0.into());
        statuses.push(send(&gateway, request).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 429]);
    assert_eq!(send(&gateway, chat("openai", Mode::Single)).await.status, 200);
}
