//! Bodies that are too large or too slow.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use tidegate_providers::Dialect;
use tokio::time::Instant;
use tower::BoxError;

use crate::support::{PEER, SECOND, gateway_to, is_idle, read, send, upstream};
use crate::transport::{ScriptedProvider, SlowBody};

fn ok_provider() -> ScriptedProvider {
    ScriptedProvider::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))))
}

/// A body without a known size.
fn body_of_unknown_size(
    chunks: usize,
    size: usize,
) -> impl http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static {
    let chunk = Bytes::from(vec![b' '; size]);
    let frames = (0..chunks).map(move |_| Ok::<_, BoxError>(Frame::data(chunk.clone())));
    StreamBody::new(Frames(frames))
}

/// A stream of frames that are always ready.
struct Frames<I>(I);

impl<I: Iterator + Unpin> futures_core::Stream for Frames<I> {
    type Item = I::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<I::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}

#[tokio::test(start_paused = true)]
async fn a_too_large_content_length_is_refused_without_reading() {
    let provider = ok_provider();
    let upstreams =
        [upstream("anthropic", Dialect::Anthropic), upstream("openai", Dialect::OpenAi)];
    let gateway = gateway_to(&provider, upstreams);
    for (path, size, status) in [
        ("/v1/messages", 32 << 20, 200),
        ("/v1/messages", (32 << 20) + 1, 413),
        ("/v1/messages/count_tokens", (32 << 20) + 1, 413),
        ("/v1/messages/batches", (32 << 20) + 1, 200),
        ("/v1/messages/batches", (256 << 20) + 1, 413),
        ("/v1/files", (256 << 20) + 1, 200),
        ("/v1/files", (500 << 20) + 1, 413),
        ("/v1/messages", usize::MAX, 413),
        // This path has no limit of its own, only that of buffered bodies.
        ("/openai/v1/chat/completions", (64 << 20) + 1, 413),
    ] {
        let path =
            if path.starts_with("/openai") { path.to_owned() } else { format!("/anthropic{path}") };
        let request = Request::post(&path)
            .header("content-length", size)
            .body(Full::new(Bytes::from_static(b"{}")))
            .unwrap();
        let response = send(&gateway, request).await;
        assert_eq!(response.status, status, "{path} {size}");
        if status == 413 {
            assert!(response.json().to_string().contains("request_too_large"), "{path}");
        }
    }
    assert_eq!(provider.requests().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_refused_once_it_exceeds_the_limit() {
    let provider = ok_provider();
    let upstreams =
        [upstream("anthropic", Dialect::Anthropic), upstream("openai", Dialect::OpenAi)];
    let gateway = gateway_to(&provider, upstreams);
    let mebibyte = 1 << 20;
    for (path, chunks, status) in [
        ("/anthropic/v1/messages", 33, 413),
        ("/openai/v1/chat/completions", 65, 413),
        ("/anthropic/v1/files", 501, 413),
        ("/anthropic/v1/messages/batches", 257, 413),
        ("/openai/v1/files", 100, 200),
    ] {
        let request = Request::post(path).body(body_of_unknown_size(chunks, mebibyte)).unwrap();
        let response = read(gateway.handle(request, PEER).await).await.unwrap();
        assert_eq!(response.status, status, "{path}");
    }
    assert_eq!(provider.requests().len(), 1, "only the body that fits was sent in full");
}

#[tokio::test(start_paused = true)]
async fn a_broken_body_is_not_forwarded() {
    let provider = ok_provider();
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi)]);
    let frames = [Ok(Frame::data(Bytes::from_static(b"{"))), Err(BoxError::from("gone"))];
    let body = StreamBody::new(Frames(frames.into_iter()));
    let request = Request::post("/openai/v1/chat/completions").body(body).unwrap();
    assert_eq!(read(gateway.handle(request, PEER).await).await.unwrap().status, 400);
    assert!(provider.requests().is_empty());
}

/// A request whose body is streamed.
fn upload_request(chunks: &[(Duration, &'static str)]) -> Request<SlowBody> {
    Request::post("/openai/v1/audio/transcriptions")
        .header("content-type", "multipart/form-data; boundary=x")
        .body(SlowBody::new(chunks))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stalled_upload_is_aborted_and_frees_its_slot() {
    // The peeked prefix arrives, and then nothing more.
    let peeked: &'static str = " ".repeat(64 << 10).leak();
    let provider = ok_provider();
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi)]);
    let start = Instant::now();
    let request = upload_request(&[(SECOND, peeked), (SECOND * 3_600, "end")]);
    let response = read(gateway.handle(request, PEER).await).await.unwrap();
    assert_eq!(response.status, 408);
    assert!((SECOND * 60..SECOND * 63).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(provider.requests().is_empty() && is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn a_steady_upload_has_no_short_timeout() {
    let provider = ok_provider();
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi)]);
    let peeked: &'static str = " ".repeat(64 << 10).leak();
    let chunk: &'static str = " ".repeat(512 << 10).leak();
    let mut chunks = vec![(SECOND, peeked)];
    chunks.extend([(SECOND * 50, chunk); 40]);
    let response = read(gateway.handle(upload_request(&chunks), PEER).await).await.unwrap();
    assert_eq!((response.status.as_u16(), provider.requests().len()), (200, 1));
    assert_eq!(provider.requests()[0].body.len(), peeked.len() + 40 * chunk.len());
    assert!(is_idle(&gateway));
}
