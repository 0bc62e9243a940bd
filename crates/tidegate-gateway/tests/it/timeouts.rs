//! Stalling providers, in virtual time: when they time out, what is reported and what is released.

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
use crate::support::{MILLI, Mode, PEER, SECOND, chat, engine, is_idle, read, send, upstream};
use crate::transport::SlowBody;

const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Elbe\"}}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const NEVER: Duration = Duration::from_secs(86_400);

/// Delay of the response head, and the delayed chunks of its body.
#[derive(Clone, Copy)]
struct Timing(Duration, &'static [(Duration, &'static str)]);

const IMMEDIATE: Timing = Timing(MILLI, &[(MILLI, EVENT), (MILLI, DONE)]);

fn openai() -> Upstream {
    upstream("openai", Dialect::OpenAi)
}

/// A gateway to a streaming provider whose first response has this timing; all others are
/// immediate.
fn slow_gateway(first: Timing, upstream: Upstream) -> Gateway {
    let requests = Arc::new(AtomicUsize::new(0));
    let http = service_fn(move |request: Request<RequestBody>| {
        let number = requests.fetch_add(1, Ordering::Relaxed);
        let Timing(head, chunks) = if number == 0 { first } else { IMMEDIATE };
        async move {
            request.into_body().collect().await?;
            sleep(head).await;
            let response = Response::builder().header("content-type", "text/event-stream");
            Ok::<_, BoxError>(response.body(SlowBody::new(chunks))?)
        }
    });
    Gateway::builder(&engine()).http(http).upstream(upstream).build().unwrap()
}

fn is_about(span: Duration, expected: Duration) -> bool {
    (expected..expected + MILLI * 10).contains(&span)
}

#[tokio::test(start_paused = true)]
async fn no_first_byte_is_a_504_naming_the_timeout() {
    for (upstream, limit, text) in [
        (openai(), SECOND * 120, "120s"),
        (openai().first_byte_timeout(SECOND * 3), SECOND * 3, "3s"),
    ] {
        let gateway = slow_gateway(Timing(NEVER, &[]), upstream.max_retries(0));
        let start = Instant::now();
        let response = send(&gateway, chat("openai", Mode::Single)).await;
        assert!(is_about(start.elapsed(), limit), "{:?}", start.elapsed());
        assert_eq!(response.status, 504);
        assert_eq!(response.json()["error"]["code"], "provider_timeout");
        assert_eq!(
            response.json()["error"]["message"],
            format!(
                "Tidegate: openai did not answer in time: first-byte timeout: \
                 the response did not begin within {text}"
            )
        );
        assert!(is_idle(&gateway));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_only_a_head_is_retried() {
    let upstream = openai().first_byte_timeout(SECOND * 30);
    let gateway = slow_gateway(Timing(SECOND * 20, &[(NEVER, EVENT)]), upstream);
    let start = Instant::now();
    let response = send(&gateway, chat("openai", Mode::Stream)).await;
    assert_eq!((response.status.as_u16(), response.number("x-tidegate-attempts")), (200, 2));
    assert_eq!(&response.body[..], format!("{EVENT}{DONE}").as_bytes());
    // The timeout runs from the request, not from the head; then the retry delay follows.
    assert!((SECOND * 30..SECOND * 35).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_stream_fails_and_frees_its_slot() {
    for (upstream, limit) in [
        (openai(), SECOND * 60),
        (openai().idle_timeout(SECOND * 2).first_byte_timeout(MILLI * 100), SECOND * 2),
    ] {
        let gateway = slow_gateway(Timing(MILLI, &[(MILLI, EVENT), (NEVER, DONE)]), upstream);
        let mut response = gateway.handle(chat("openai", Mode::Stream), PEER).await;
        assert_eq!(response.status(), 200);
        let first = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), EVENT);
        assert!(!is_idle(&gateway));
        let start = Instant::now();
        let error = response.body_mut().frame().await.unwrap().unwrap_err();
        assert!(is_about(start.elapsed(), limit), "{:?}", start.elapsed());
        let ResponseBodyError::TimedOut(error) = error else { panic!("{error}") };
        assert!(matches!(error, ConnectionError::Idle(span) if span == limit), "{error}");
        assert!(is_idle(&gateway), "while the body is still held");
        assert!(response.body_mut().frame().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_but_steady_stream_does_not_time_out() {
    const SLOW: Timing = Timing(
        Duration::from_secs(60),
        &[
            (Duration::from_secs(59), EVENT),
            (Duration::from_secs(59), EVENT),
            (Duration::from_secs(59), DONE),
        ],
    );
    let gateway = slow_gateway(SLOW, openai());
    let response = gateway.handle(chat("openai", Mode::Stream), PEER).await;
    let response = read(response).await.unwrap();
    assert_eq!(response.number("x-tidegate-attempts"), 1);
    assert_eq!(&response.body[..], format!("{EVENT}{EVENT}{DONE}").as_bytes());
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn a_pausing_upload_does_not_time_out_the_provider() {
    let chunk: &'static str = " ".repeat(512 << 10).leak();
    let upload = SlowBody::new(&[(SECOND * 50, chunk); 3]);
    let request = Request::post("/openai/v1/files").body(upload).unwrap();
    let gateway = slow_gateway(IMMEDIATE, openai().first_byte_timeout(SECOND * 5));
    let response = read(gateway.handle(request, PEER).await).await.unwrap();
    assert_eq!(response.status, 200);
}

#[test]
fn a_stalled_stream_is_logged_with_provider_and_timeout() {
    let log = Log::default();
    log.capture(|| {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let gateway = slow_gateway(Timing(MILLI, &[(MILLI, EVENT), (NEVER, DONE)]), openai());
            read(gateway.handle(chat("openai", Mode::Stream), PEER).await).await.unwrap_err();
        });
    });
    let line =
        "provider stopped sending; response aborted provider=openai timeout=\"idle\" after=60s";
    assert_eq!(log.count(line), 1);
}
