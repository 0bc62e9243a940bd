//! Bodies that are too large, or too long in coming.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use tidegate_providers::Dialect;
use tokio::time::Instant;
use tower::BoxError;

use crate::stage::{PEER, SECOND, ask, is_idle, read, scripted, upstream};
use crate::wire::{Drip, Script};

fn fine() -> Script {
    Script::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))))
}

/// A body that does not say how large it is.
fn unmeasured(
    pieces: usize,
    size: usize,
) -> impl http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static {
    let piece = Bytes::from(vec![b' '; size]);
    let frames = (0..pieces).map(move |_| Ok::<_, BoxError>(Frame::data(piece.clone())));
    StreamBody::new(Frames(frames))
}

/// Frames that are all there.
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
async fn a_body_that_says_that_it_is_too_large_is_not_read() {
    let script = fine();
    let upstreams =
        [upstream("anthropic", Dialect::Anthropic), upstream("openai", Dialect::OpenAi)];
    let gateway = scripted(&script, upstreams);
    for (path, size, status) in [
        ("/v1/messages", 32 << 20, 200),
        ("/v1/messages", (32 << 20) + 1, 413),
        ("/v1/messages/count_tokens", (32 << 20) + 1, 413),
        ("/v1/messages/batches", (32 << 20) + 1, 200),
        ("/v1/messages/batches", (256 << 20) + 1, 413),
        ("/v1/files", (256 << 20) + 1, 200),
        ("/v1/files", (500 << 20) + 1, 413),
        ("/v1/messages", usize::MAX, 413),
        // Nothing is known of this one but that it would be collected.
        ("/openai/v1/chat/completions", (64 << 20) + 1, 413),
    ] {
        let path =
            if path.starts_with("/openai") { path.to_owned() } else { format!("/anthropic{path}") };
        let request = Request::post(&path)
            .header("content-length", size)
            .body(Full::new(Bytes::from_static(b"{}")))
            .unwrap();
        let answer = ask(&gateway, request).await;
        assert_eq!(answer.status, status, "{path} {size}");
        if status == 413 {
            assert!(answer.json().to_string().contains("request_too_large"), "{path}");
        }
    }
    assert_eq!(script.got().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_turns_out_to_be_too_large_is_refused_when_it_is() {
    let script = fine();
    let upstreams =
        [upstream("anthropic", Dialect::Anthropic), upstream("openai", Dialect::OpenAi)];
    let gateway = scripted(&script, upstreams);
    let mebibyte = 1 << 20;
    for (path, pieces, status) in [
        ("/anthropic/v1/messages", 33, 413),
        ("/openai/v1/chat/completions", 65, 413),
        ("/anthropic/v1/files", 501, 413),
        ("/anthropic/v1/messages/batches", 257, 413),
        ("/openai/v1/files", 100, 200),
    ] {
        let request = Request::post(path).body(unmeasured(pieces, mebibyte)).unwrap();
        let answer = read(gateway.handle(request, PEER).await).await.unwrap();
        assert_eq!(answer.status, status, "{path}");
    }
    assert_eq!(script.got().len(), 1, "nothing whole was sent but what fits");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_is_sent_to_nobody() {
    let script = fine();
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi)]);
    let frames = [Ok(Frame::data(Bytes::from_static(b"{"))), Err(BoxError::from("gone"))];
    let body = StreamBody::new(Frames(frames.into_iter()));
    let request = Request::post("/openai/v1/chat/completions").body(body).unwrap();
    assert_eq!(read(gateway.handle(request, PEER).await).await.unwrap().status, 400);
    assert!(script.got().is_empty());
}

/// A recording that is sent as it comes.
fn recording(pieces: &[(Duration, &'static str)]) -> Request<Drip> {
    Request::post("/openai/v1/audio/transcriptions")
        .header("content-type", "multipart/form-data; boundary=x")
        .body(Drip::new(pieces))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_falls_silent_in_the_middle_of_its_upload_gives_its_place_back() {
    // What is looked at is all there, and then nothing comes.
    let look: &'static str = " ".repeat(64 << 10).leak();
    let script = fine();
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi)]);
    let start = Instant::now();
    let request = recording(&[(SECOND, look), (SECOND * 3_600, "end")]);
    let answer = read(gateway.handle(request, PEER).await).await.unwrap();
    assert_eq!(answer.status, 408);
    assert!((SECOND * 60..SECOND * 63).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(script.got().is_empty() && is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn an_upload_may_take_as_long_as_it_goes_on() {
    let script = fine();
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi)]);
    let look: &'static str = " ".repeat(64 << 10).leak();
    let piece: &'static str = " ".repeat(512 << 10).leak();
    let mut pieces = vec![(SECOND, look)];
    pieces.extend([(SECOND * 50, piece); 40]);
    let answer = read(gateway.handle(recording(&pieces), PEER).await).await.unwrap();
    assert_eq!((answer.status.as_u16(), script.got().len()), (200, 1));
    assert_eq!(script.got()[0].body.len(), look.len() + 40 * piece.len());
    assert!(is_idle(&gateway));
}
