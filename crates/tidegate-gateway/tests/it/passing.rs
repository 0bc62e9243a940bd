//! What comes in goes out, byte for byte.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use tidegate_providers::Dialect;

use crate::stage::{
    FAMILIES, PEER, Want, account, ask, chat, gateway, is_idle, read, scripted, simulator, upstream,
};
use crate::wire::Script;

/// A provider that says little.
fn quiet() -> Script {
    Script::new(|_, _| {
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
async fn every_family_is_answered_whole_and_in_pieces() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim));
        let gateway = gateway(&simulator, upstream(name, dialect));
        for want in [Want::Whole, Want::Stream] {
            let answer = ask(&gateway, chat(name, want)).await;
            assert_eq!(answer.status, 200, "{name} {want:?}: {:?}", answer.body);
            assert!(answer.body.windows(3).any(|word| word == b"sea"), "{name}: {:?}", answer.body);
            assert_eq!(answer.field("x-tidegate-provider"), name);
            assert_eq!(
                (answer.number("x-tidegate-attempts"), answer.number("x-tidegate-wait-ms")),
                (1, 0)
            );
            assert_eq!(answer.field("x-tidegate-request-id").len(), 16);
        }
        assert!(is_idle(&gateway), "{name}");
        assert_eq!(simulator.ledger().seen(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn any_method_and_path_is_passed_on_with_its_query_and_odd_fields() {
    let script = quiet();
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi)]);
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
        let answer = ask(&gateway, request).await;
        assert_eq!(answer.status, 201);
        assert_eq!(answer.body, &b"\x00\xffbytes"[..]);
        assert_eq!(answer.fields.get_all("x-provider").iter().count(), 2);
        assert!(answer.fields.get("x-hop").is_none() && answer.fields.get("connection").is_none());
    }
    for got in script.got() {
        assert_eq!(got.uri, "http://provider.test/v1/files/a%20b;v=1?after=%2F&&x=1&after=2");
        assert_eq!(got.body, &b"\x00\xfe"[..]);
        assert_eq!(got.fields["x-odd"].as_bytes(), b"caf\xe9");
        assert_eq!(got.fields.get_all("x-many").iter().count(), 2);
        assert_eq!(got.fields["host"], "provider.test");
        assert_eq!(got.fields["accept-encoding"], "br, gzip", "nothing has to be read here");
        assert!(got.fields.get("te").is_none() && got.fields.get("x-tidegate-tenant").is_none());
    }
    assert_eq!(script.got().len(), 5);
    assert_eq!(script.got()[4].method.as_str(), "PURGE");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_counted_is_still_sent_as_it_came() {
    let script = quiet();
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi)]);
    let body = "  {\"model\" :\"gpt-4o\", \"messages\":[], \"new_member\": 1e400 }\n";
    let request = Request::post("/openai/v1/chat/completions?beta=true")
        .header("accept-encoding", "gzip")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    ask(&gateway, request).await;
    let got = &script.got()[0];
    assert_eq!(got.body, body);
    assert_eq!(got.uri.query(), Some("beta=true"));
    assert_eq!(got.fields["accept-encoding"], "identity");
}

#[tokio::test(start_paused = true)]
async fn a_form_is_streamed_and_its_model_is_seen() {
    let script = quiet();
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi).models(["whisper-1"])]);
    let form = "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--x\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--x--\r\n";
    let request = Request::post("/openai/v1/audio/transcriptions")
        .header("content-type", "multipart/form-data; boundary=x")
        .body(Full::new(Bytes::from(form)))
        .unwrap();
    let answer = ask(&gateway, request).await;
    assert_eq!(answer.status, 201);
    assert_eq!(script.got()[0].body, form);
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn gemini_is_found_with_and_without_a_version() {
    let script = quiet();
    let gateway = scripted(&script, [upstream("gemini", Dialect::Gemini)]);
    for path in [
        "/gemini/models/m:countTokens",
        "/gemini/v1/models/m:countTokens",
        "/gemini/v1beta/models?key=k",
    ] {
        let request = Request::post(path).body(Full::new(Bytes::new())).unwrap();
        read(gateway.handle(request, PEER).await).await.unwrap();
    }
    let uris: Vec<String> = script.got().iter().map(|got| got.uri.to_string()).collect();
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
async fn paths_that_lead_elsewhere_are_refused() {
    let script = quiet();
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi)]);
    for path in ["/openai/v1/../../admin", "/openai/%2e%2e/admin"] {
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        assert_eq!(ask(&gateway, request).await.status, 400, "{path}");
    }
    assert!(script.got().is_empty());
    let nobody = Request::get("/nobody/v1").body(Full::new(Bytes::new())).unwrap();
    let nobody = ask(&gateway, nobody).await;
    assert_eq!(nobody.status, 404);
    assert_eq!(nobody.field("content-type"), "application/problem+json");
    assert!(gateway.serves("/openai") && gateway.serves("/openai/v1/models"));
    assert!(!gateway.serves("/v1/take") && !gateway.serves("/") && !gateway.serves("/openaix/v1"));
}
