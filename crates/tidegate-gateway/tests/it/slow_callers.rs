//! Callers that send their bodies too slowly, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tidegate_gateway::{Gateway, RequestBody};
use tidegate_providers::Dialect;
use tokio::time::{Instant, sleep};
use tower::BoxError;
use tower::service_fn;

use crate::support::{
    FAMILIES, Mode, PEER, SECOND, chat, engine, gateway_to, is_idle, read, upstream,
};
use crate::transport::{ScriptedProvider, SlowBody};

fn ok_provider() -> ScriptedProvider {
    ScriptedProvider::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))))
}

/// Sends `size` bytes at once, and then one byte per second for an hour.
fn slow_body(size: usize) -> SlowBody {
    let initial: &'static str = " ".repeat(size).leak();
    let mut chunks = vec![(Duration::ZERO, initial)];
    chunks.extend([(SECOND, " "); 3_600]);
    SlowBody::new(&chunks)
}

#[tokio::test(start_paused = true)]
async fn slow_last_bytes_are_a_408_in_every_dialect() {
    let provider = ok_provider();
    for (name, dialect, _) in FAMILIES {
        for size in [0, 1 << 10, 4 << 20] {
            let gateway = gateway_to(&provider, [upstream(name, dialect)]);
            let start = Instant::now();
            let request = chat(name, Mode::Single).map(|_| slow_body(size));
            let response = read(gateway.handle(request, PEER).await).await.unwrap();
            assert_eq!((response.status.as_u16(), response.header("connection")), (408, "close"));
            assert!(
                response.json()["error"].to_string().contains("did not arrive in time"),
                "{name}"
            );
            assert!((SECOND * 19..SECOND * 22).contains(&start.elapsed()), "{name} {size}");
            assert!(is_idle(&gateway));
        }
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_buffered_body_may_take_ten_minutes() {
    let provider = ok_provider();
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi)]);
    let chunk: &'static str = " ".repeat(16 << 10).leak();
    for (chunks, status) in [(590, 200), (610, 408)] {
        let body = SlowBody::new(&vec![(SECOND, chunk); chunks]);
        let request = chat("openai", Mode::Single).map(|_| body);
        let response = read(gateway.handle(request, PEER).await).await.unwrap();
        assert_eq!(response.status, status, "{chunks}");
    }
    assert_eq!(provider.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_upload_is_aborted_and_frees_its_slot() {
    for (path, kind) in [
        ("/openai/v1/audio/transcriptions", "multipart/form-data; boundary=x"),
        ("/openai/v1/audio/transcriptions", "audio/wav"),
        ("/openai/v1/files", "multipart/form-data; boundary=x"),
    ] {
        let gateway = gateway_to(&ok_provider(), [upstream("openai", Dialect::OpenAi)]);
        let request = Request::post(path).header("content-type", kind);
        let start = Instant::now();
        let request = request.body(slow_body(128 << 10)).unwrap();
        let response = read(gateway.handle(request, PEER).await).await.unwrap();
        assert_eq!(response.status, 408, "{path} {kind}");
        assert!((SECOND * 59..SECOND * 63).contains(&start.elapsed()), "{:?}", start.elapsed());
        assert!(is_idle(&gateway));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_provider_does_not_time_out_the_caller() {
    let http = service_fn(|request: Request<RequestBody>| async move {
        let mut body = request.into_body();
        for _ in 0..10 {
            sleep(SECOND * 100).await;
            body.frame().await.unwrap()?;
        }
        body.collect().await?;
        Ok::<_, BoxError>(Response::new(Full::new(Bytes::from_static(b"{}"))))
    });
    let upstream = upstream("openai", Dialect::OpenAi);
    let gateway = Gateway::builder(&engine()).http(http).upstream(upstream).build().unwrap();
    let body = SlowBody::new(&[(Duration::ZERO, "chunk"); 20]);
    let request = Request::post("/openai/v1/files").body(body).unwrap();
    let response = read(gateway.handle(request, PEER).await).await.unwrap();
    assert_eq!(response.status, 200);
}

#[tokio::test(start_paused = true)]
async fn large_bodies_of_one_address_do_not_block_others() {
    let gateway = Arc::new(gateway_to(&ok_provider(), [upstream("openai", Dialect::OpenAi)]));
    let initial: &'static str = " ".repeat(24 << 20).leak();
    let large_request = || {
        let body = SlowBody::new(&[(Duration::ZERO, initial), (SECOND * 10, " ")]);
        chat("openai", Mode::Single).map(|_| body)
    };
    let mut in_progress = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (gateway, request) = (gateway.clone(), large_request());
        in_progress.spawn(async move { read(gateway.handle(request, PEER).await).await.unwrap() });
    }
    let refused = in_progress.join_next().await.unwrap().unwrap();
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, "1"));
    assert_eq!(refused.json()["error"]["code"], "gateway_busy");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("from this address"));
    let small = gateway.handle(chat("openai", Mode::Single), PEER).await;
    assert_eq!(small.status(), 200);
    let other = gateway.handle(large_request(), [127, 0, 0, 2].into()).await;
    assert_eq!(other.status(), 200);
    let rest = in_progress.join_all().await;
    assert!(rest.iter().all(|response| response.status == 200));
    assert_eq!(gateway.handle(large_request(), PEER).await.status(), 200, "the budget is released");
}
