//! Providers that stall, in virtual time: when they are given up, what is told, and what is freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use tidegate_gateway::{Gateway, RequestBody, ResponseBodyError, Upstream};
use tidegate_llm::ConnectionError;
use tidegate_providers::Dialect;
use tokio::time::{Instant, sleep};
use tower::BoxError;
use tower::service_fn;

use crate::log::Log;
use crate::stage::{MILLI, PEER, SECOND, Want, ask, chat, engine, is_idle, read, upstream};
use crate::wire::Drip;

const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Elbe\"}}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const NEVER: Duration = Duration::from_secs(86_400);

/// When the head of an answer comes, and when the pieces of its body.
#[derive(Clone, Copy)]
struct Timing(Duration, &'static [(Duration, &'static str)]);

const FINE: Timing = Timing(MILLI, &[(MILLI, EVENT), (MILLI, DONE)]);

fn openai() -> Upstream {
    upstream("openai", Dialect::OpenAi)
}

/// A gateway to a provider that streams: its first answer with this timing, all others fine.
fn slow(first: Timing, upstream: Upstream) -> Gateway {
    let asked = Arc::new(AtomicUsize::new(0));
    let http = service_fn(move |request: Request<RequestBody>| {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        let Timing(head, pieces) = if number == 0 { first } else { FINE };
        async move {
            request.into_body().collect().await?;
            sleep(head).await;
            let response = Response::builder().header("content-type", "text/event-stream");
            Ok::<_, BoxError>(response.body(Drip::new(pieces))?)
        }
    });
    Gateway::builder(&engine()).http(http).upstream(upstream).build().unwrap()
}

fn about(span: Duration, expected: Duration) -> bool {
    (expected..expected + MILLI * 10).contains(&span)
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_begin_is_a_504_that_names_the_timeout() {
    for (upstream, limit, text) in [
        (openai(), SECOND * 120, "120s"),
        (openai().first_byte_timeout(SECOND * 3), SECOND * 3, "3s"),
    ] {
        let gateway = slow(Timing(NEVER, &[]), upstream.max_retries(0));
        let start = Instant::now();
        let answer = ask(&gateway, chat("openai", Want::Whole)).await;
        assert!(about(start.elapsed(), limit), "{:?}", start.elapsed());
        assert_eq!(answer.status, 504);
        assert_eq!(answer.json()["error"]["code"], "provider_timeout");
        assert_eq!(
            answer.json()["error"]["message"],
            format!(
                "Tidegate: openai did not answer in time: first-byte time-out: \
                 the response did not begin within {text}"
            )
        );
        assert!(is_idle(&gateway));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_sends_its_head_and_nothing_else_is_tried_again() {
    let upstream = openai().first_byte_timeout(SECOND * 30);
    let gateway = slow(Timing(SECOND * 20, &[(NEVER, EVENT)]), upstream);
    let start = Instant::now();
    let answer = ask(&gateway, chat("openai", Want::Stream)).await;
    assert_eq!((answer.status.as_u16(), answer.number("x-tidegate-attempts")), (200, 2));
    assert_eq!(&answer.body[..], format!("{EVENT}{DONE}").as_bytes());
    // The time-out runs from the request, not from the head; then comes the delay of the retry.
    assert!((SECOND * 30..SECOND * 35).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stalls_in_the_middle_ends_with_an_error_and_frees_its_slot() {
    for (upstream, limit) in [
        (openai(), SECOND * 60),
        (openai().idle_timeout(SECOND * 2).first_byte_timeout(MILLI * 100), SECOND * 2),
    ] {
        let gateway = slow(Timing(MILLI, &[(MILLI, EVENT), (NEVER, DONE)]), upstream);
        let mut response = gateway.handle(chat("openai", Want::Stream), PEER).await;
        assert_eq!(response.status(), 200);
        let first = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), EVENT);
        assert!(!is_idle(&gateway));
        let start = Instant::now();
        let error = response.body_mut().frame().await.unwrap().unwrap_err();
        assert!(about(start.elapsed(), limit), "{:?}", start.elapsed());
        let ResponseBodyError::TimedOut(error) = error else { panic!("{error}") };
        assert!(matches!(error, ConnectionError::Idle(span) if span == limit), "{error}");
        assert!(is_idle(&gateway), "while the body is still held");
        assert!(response.body_mut().frame().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn pieces_that_come_in_time_are_no_timeout_however_many_there_are() {
    const SLOW: Timing = Timing(
        Duration::from_secs(60),
        &[
            (Duration::from_secs(59), EVENT),
            (Duration::from_secs(59), EVENT),
            (Duration::from_secs(59), DONE),
        ],
    );
    let gateway = slow(SLOW, openai());
    let response = gateway.handle(chat("openai", Want::Stream), PEER).await;
    let answer = read(response).await.unwrap();
    assert_eq!(answer.number("x-tidegate-attempts"), 1);
    assert_eq!(&answer.body[..], format!("{EVENT}{EVENT}{DONE}").as_bytes());
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_pauses_in_its_upload_is_not_the_providers_fault() {
    let piece: &'static str = " ".repeat(512 << 10).leak();
    let upload = Drip::new(&[(SECOND * 50, piece); 3]);
    let request = Request::post("/openai/v1/files").body(upload).unwrap();
    let gateway = slow(FINE, openai().first_byte_timeout(SECOND * 5));
    let answer = read(gateway.handle(request, PEER).await).await.unwrap();
    assert_eq!(answer.status, 200);
}

#[test]
fn a_stall_in_the_middle_is_logged_with_the_provider_and_the_timeout() {
    let log = Log::default();
    log.hear(|| {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let gateway = slow(Timing(MILLI, &[(MILLI, EVENT), (NEVER, DONE)]), openai());
            read(gateway.handle(chat("openai", Want::Stream), PEER).await).await.unwrap_err();
        });
    });
    let line =
        "provider stopped sending; answer broken off provider=openai timeout=\"idle\" after=60s";
    assert_eq!(log.count(line), 1);
}
