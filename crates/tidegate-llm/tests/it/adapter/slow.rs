//! Providers that never come to an end, but always send a little more.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tidegate_llm::adapter::Adapter;
use tidegate_llm::{Answer, Broken, Call, CallError};
use tidegate_providers::{Class, Dialect};
use tokio::time::{Instant, sleep};
use tower::{ServiceExt as _, service_fn};

use super::{call, target};

const SECOND: Duration = Duration::from_secs(1);

/// What a provider says first, and what it says again and again, so far apart.
#[derive(Clone, Copy)]
struct Drip {
    status: StatusCode,
    first: &'static str,
    drop: &'static str,
    apart: Duration,
}

impl Drip {
    fn body(self) -> UnsyncBoxBody<Bytes, Infallible> {
        let frames = futures_util::stream::unfold(self.first, move |said| async move {
            if said == self.drop {
                sleep(self.apart).await;
            }
            Some((Ok(Frame::data(Bytes::from(said))), self.drop))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn ask(self, call: Call) -> Result<Answer, CallError> {
        let http = service_fn(move |_| async move {
            let response = Response::builder().status(self.status).header("retry-after", "1");
            Ok::<_, Infallible>(response.body(self.body()).unwrap())
        });
        Adapter::new(http, "sim", target(Dialect::OpenAi, "http://sim", &[])).oneshot(call).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_is_known_soon_after_its_head() {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let drip = Drip { status, first: "{", drop: " ", apart: SECOND };
    let began = Instant::now();
    let error = drip.ask(call()).await.unwrap_err();
    assert_eq!(error.class(), Class::RateLimited { after: Some(SECOND), dimension: None });
    assert_eq!(began.elapsed(), SECOND * 5);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_one_piece_that_only_drips_times_out() {
    let drip = Drip { status: StatusCode::OK, first: "\n", drop: "\n", apart: SECOND * 100 };
    let began = Instant::now();
    let error = drip.ask(call()).await.unwrap_err();
    assert!(matches!(error, CallError::Connection { broken: Broken::TimedOut, .. }), "{error}");
    assert_eq!(began.elapsed(), SECOND * 600, "five time-outs of two minutes");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_goes_on_after_its_end_ends() {
    let first = "data: {\"choices\":[{\"delta\":{\"content\":\"Elbe\"},\
                 \"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let drip =
        Drip { status: StatusCode::OK, first, drop: ": keep-alive\n\n", apart: SECOND * 3 / 10 };
    let began = Instant::now();
    let reply = drip.ask(call().streamed()).await.unwrap().whole().await.unwrap();
    assert_eq!(reply.text, "Elbe");
    assert_eq!(began.elapsed(), SECOND);
}
