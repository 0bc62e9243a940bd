//! Requests and responses are forwarded byte for byte.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use tidegate_providers::Dialect;

use crate::support::{
    FAMILIES, Mode, PEER, account, chat, gateway, gateway_to, is_idle, read, send, simulator,
    upstream,
};
use crate::transport::ScriptedProvider;

/// A provider that responds with 201, repeated headers and a hop-by-hop header.
fn created_provider() -> ScriptedProvider {
    ScriptedProvider::new(|_, _| {
        Response::builder()
            .status(201)
            .header("x-provider", "one")
            .header("x-provider", "two")
            .header("connection", "close, x-hop")
            .header("x-hop", "1")
            .body(Full::new(Bytes::from_static(b"\x00\xffbytes")))
            .unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn every_dialect_answers_single_and_streamed() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim));
        let gateway = gateway(&simulator, upstream(name, dialect));
        for mode in [Mode::Single, Mode::Stream] {
            let response = send(&gateway, chat(name, mode)).await;
            assert_eq!(response.status, 200, "{name} {mode:?}: {:?}", response.body);
            assert!(
                response.body.windows(3).any(|word| word == b"sea"),
                "{name}: {:?}",
                response.body
            );
            assert_eq!(response.header("x-tidegate-provider"), name);
            assert_eq!(
                (response.number("x-tidegate-attempts"), response.number("x-tidegate-wait-ms")),
                (1, 0)
            );
            assert_eq!(response.header("x-tidegate-request-id").len(), 16);
        }
        assert!(is_idle(&gateway), "{name}");
        assert_eq!(simulator.ledger().seen(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn methods_paths_queries_and_headers_are_forwarded_unchanged() {
    let provider = created_provider();
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi)]);
    for method in [
        Method::GET,
        Method::DELETE,
        Method::PUT,
        Method::PATCH,
        Method::from_bytes(b"PURGE").unwrap(),
    ] {
        let request = Request::builder()
            .method(method)
            .uri("/openai/v1/files/a%20b;v=1?after=%2F&&x=1&after=2")
            .header("x-odd", b"caf\xe9".as_slice())
            .header("x-many", "1")
            .header("x-many", "2")
            .header("accept-encoding", "br, gzip")
            .header("te", "trailers")
            .header("x-tidegate-tenant", "team-a")
            .header("host", "gateway.test")
            .body(Full::new(Bytes::from_static(b"\x00\xfe")))
            .unwrap();
        let response = send(&gateway, request).await;
        assert_eq!(response.status, 201);
        assert_eq!(response.body, &b"\x00\xffbytes"[..]);
        assert_eq!(response.headers.get_all("x-provider").iter().count(), 2);
        assert!(
            response.headers.get("x-hop").is_none() && response.headers.get("connection").is_none()
        );
    }
    for got in provider.requests() {
        assert_eq!(got.uri, "http://provider.test/v1/files/a%20b;v=1?after=%2F&&x=1&after=2");
        assert_eq!(got.body, &b"\x00\xfe"[..]);
        assert_eq!(got.headers["x-odd"].as_bytes(), b"caf\xe9");
        assert_eq!(got.headers.get_all("x-many").iter().count(), 2);
        assert_eq!(got.headers["host"], "provider.test");
        assert_eq!(got.headers["accept-encoding"], "br, gzip", "the response is not read");
        assert!(got.headers.get("te").is_none() && got.headers.get("x-tidegate-tenant").is_none());
    }
    assert_eq!(provider.requests().len(), 5);
    assert_eq!(provider.requests()[4].method.as_str(), "PURGE");
}

#[tokio::test(start_paused = true)]
async fn a_counted_body_is_forwarded_unchanged() {
    let provider = created_provider();
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi)]);
    let body = "  {\"model\" :\"gpt-4o\", \"messages\":[], \"new_member\": 1e400 }\n";
    let request = Request::post("/openai/v1/chat/completions?beta=true")
        .header("accept-encoding", "gzip")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    send(&gateway, request).await;
    let got = &provider.requests()[0];
    assert_eq!(got.body, body);
    assert_eq!(got.uri.query(), Some("beta=true"));
    assert_eq!(got.headers["accept-encoding"], "identity");
}

#[tokio::test(start_paused = true)]
async fn a_form_is_streamed_and_its_model_is_read() {
    let provider = created_provider();
    let gateway =
        gateway_to(&provider, [upstream("openai", Dialect::OpenAi).models(["whisper-1"])]);
    let form = "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--x\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--x--\r\n";
    let request = Request::post("/openai/v1/audio/transcriptions")
        .header("content-type", "multipart/form-data; boundary=x")
        .body(Full::new(Bytes::from(form)))
        .unwrap();
    let response = send(&gateway, request).await;
    assert_eq!(response.status, 201);
    assert_eq!(provider.requests()[0].body, form);
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn gemini_paths_work_with_and_without_a_version() {
    let provider = created_provider();
    let gateway = gateway_to(&provider, [upstream("gemini", Dialect::Gemini)]);
    for path in [
        "/gemini/models/m:countTokens",
        "/gemini/v1/models/m:countTokens",
        "/gemini/v1beta/models?key=k",
    ] {
        let request = Request::post(path).body(Full::new(Bytes::new())).unwrap();
        read(gateway.handle(request, PEER).await).await.unwrap();
    }
    let uris: Vec<String> = provider.requests().iter().map(|got| got.uri.to_string()).collect();
    assert_eq!(
        uris,
        [
            "http://provider.test/v1beta/models/m:countTokens",
            "http://provider.test/v1/models/m:countTokens",
            "http://provider.test/v1beta/models?key=k",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn path_traversal_and_unknown_providers_are_refused() {
    let provider = created_provider();
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi)]);
    for path in ["/openai/v1/../../admin", "/openai/%2e%2e/admin"] {
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        assert_eq!(send(&gateway, request).await.status, 400, "{path}");
    }
    assert!(provider.requests().is_empty());
    let unknown = Request::get("/unknown/v1").body(Full::new(Bytes::new())).unwrap();
    let unknown = send(&gateway, unknown).await;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.header("content-type"), "application/problem+json");
    assert!(gateway.serves("/openai") && gateway.serves("/openai/v1/models"));
    assert!(!gateway.serves("/v1/take") && !gateway.serves("/") && !gateway.serves("/openaix/v1"));
}
