//! Providers that never finish, but keep sending a little.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tidegate_llm::adapter::Adapter;
use tidegate_llm::{Call, CallError, CallResponse, ConnectionFailure};
use tidegate_providers::{Class, Dialect};
use tokio::time::{Instant, sleep};
use tower::{ServiceExt as _, service_fn};

use super::{call, target};

const SECOND: Duration = Duration::from_secs(1);

/// A body that sends `first`, and then `drop` again and again, `apart` from each other.
#[derive(Clone, Copy)]
struct Drip {
    status: StatusCode,
    first: &'static str,
    drop: &'static str,
    apart: Duration,
}

impl Drip {
    fn body(self) -> UnsyncBoxBody<Bytes, Infallible> {
        let frames = futures_util::stream::unfold(self.first, move |piece| async move {
            if piece == self.drop {
                sleep(self.apart).await;
            }
            Some((Ok(Frame::data(Bytes::from(piece))), self.drop))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn send(self, call: Call) -> Result<CallResponse, CallError> {
        let http = service_fn(move |_| async move {
            let response = Response::builder().status(self.status).header("retry-after", "1");
            Ok::<_, Infallible>(response.body(self.body()).unwrap())
        });
        Adapter::new(http, "sim", target(Dialect::OpenAi, "http://sim", &[])).oneshot(call).await
    }
}

#[tokio::test(start_paused = true)]
async fn error_body_is_read_for_five_seconds_at_most() {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let drip = Drip { status, first: "{", drop: " ", apart: SECOND };
    let started = Instant::now();
    let error = drip.send(call()).await.unwrap_err();
    assert_eq!(error.class(), Class::RateLimited { after: Some(SECOND), dimension: None });
    assert_eq!(started.elapsed(), SECOND * 5);
}

#[tokio::test(start_paused = true)]
async fn endless_response_in_one_piece_times_out() {
    let drip = Drip { status: StatusCode::OK, first: "\n", drop: "\n", apart: SECOND * 100 };
    let started = Instant::now();
    let error = drip.send(call()).await.unwrap_err();
    assert!(
        matches!(error, CallError::Connection { kind: ConnectionFailure::TimedOut, .. }),
        "{error}"
    );
    assert_eq!(started.elapsed(), SECOND * 600, "five timeouts of two minutes");
}

#[tokio::test(start_paused = true)]
async fn data_after_the_end_of_a_stream_is_ignored() {
    let first = "data: {\"choices\":[{\"delta\":{\"content\":\"Elbe\"},\
                 \"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let drip =
        Drip { status: StatusCode::OK, first, drop: ": keep-alive\n\n", apart: SECOND * 3 / 10 };
    let started = Instant::now();
    let reply = drip.send(call().streamed()).await.unwrap().into_reply().await.unwrap();
    assert_eq!(reply.text, "Elbe");
    assert_eq!(started.elapsed(), SECOND);
}

/// A deadline is the maximum time of a call, whatever is slow, and whether or not it is retried.
#[tokio::test(start_paused = true)]
async fn deadline_ends_an_attempt_without_retries() {
    let late = |drip: Drip, call: Call| async move {
        let started = Instant::now();
        let error = drip.send(call.deadline(SECOND * 30)).await.unwrap_err();
        let CallError::Connection { kind, .. } = &error else { panic!("{error}") };
        assert_eq!((*kind, started.elapsed()), (ConnectionFailure::TimedOut, SECOND * 30));
        assert!(error.was_sent());
        assert_eq!(error.to_string(), "sim did not answer in time");
    };
    let body = Drip { status: StatusCode::OK, first: "\n", drop: "\n", apart: SECOND };
    late(body, call()).await;
    late(Drip { drop: ": keep-alive\n\n", ..body }, call().streamed()).await;
    let silent = service_fn(|_| std::future::pending::<Result<Response<String>, Infallible>>());
    let silent = Adapter::new(silent, "sim", target(Dialect::OpenAi, "http://sim", &[]));
    for (deadline, end) in [(SECOND * 30, SECOND * 30), (SECOND * 3_600, SECOND * 120)] {
        let started = Instant::now();
        let error = silent.clone().oneshot(call().deadline(deadline)).await.unwrap_err();
        assert!(matches!(error, CallError::Connection { .. }), "{error}");
        assert_eq!(started.elapsed(), end, "the deadline or the timeout");
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_does_not_cut_off_a_response_that_has_begun() {
    let first = "data: {\"choices\":[{\"delta\":{\"content\":\"Elbe\"}}]}\n\n";
    let end = "data: [DONE]\n\n";
    let drip = Drip { status: StatusCode::OK, first, drop: end, apart: SECOND * 50 };
    let call = call().streamed().deadline(SECOND * 30);
    let started = Instant::now();
    let reply = drip.send(call).await.unwrap().into_reply().await.unwrap();
    assert_eq!((reply.text.as_str(), started.elapsed() >= SECOND * 50), ("Elbe", true));
}
