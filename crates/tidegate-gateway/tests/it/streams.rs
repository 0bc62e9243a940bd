//! Streamed responses: when chunks are forwarded, what they cost, and what a truncated stream
//! costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use tidegate_gateway::{Gateway, RequestBody, ResponseBodyError};
use tidegate_providers::Dimension;
use tidegate_sim::{Delay, Fault, Limits, Output};
use tokio::time::{Instant, timeout};
use tower::BoxError;
use tower::service_fn;

use crate::support::{
    ACCOUNT, FAMILIES, KEY, MILLI, MODEL, Mode, PEER, SECOND, account, chat, gateway, is_idle,
    read, send, settle, simulator, upstream,
};
use crate::transport::SlowBody;

#[tokio::test(start_paused = true)]
async fn chunks_are_forwarded_as_they_arrive() {
    for (name, dialect, sim) in FAMILIES {
        let slow = account(sim).first_token(Delay::fixed(SECOND)).per_token(Delay::fixed(SECOND));
        let gateway = gateway(&simulator(slow), upstream(name, dialect));
        let start = Instant::now();
        let mut response = gateway.handle(chat(name, Mode::Stream), PEER).await;
        let mut times = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            frame.unwrap();
            times.push(start.elapsed());
        }
        let last = times.last().unwrap();
        assert!(times.iter().filter(|time| **time < *last - SECOND * 3).count() >= 3, "{times:?}");
        assert!(is_idle(&gateway), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_as_the_first_event_is_retried() {
    // The other dialects send an event before the error, and then it is too late.
    for (name, dialect, sim) in FAMILIES.into_iter().skip(2) {
        let simulator = simulator(account(sim));
        let gateway = gateway(&simulator, upstream(name, dialect));
        simulator.inject(ACCOUNT, Fault::StreamError { after: 0 }, 1).unwrap();
        let response = send(&gateway, chat(name, Mode::Stream)).await;
        assert_eq!(response.status, 200, "{name}");
        assert_eq!(response.number("x-tidegate-attempts"), 2, "{name}: {:?}", response.body);
        assert!(!response.body.windows(5).any(|word| word == b"error"), "{name}");
        assert!(is_idle(&gateway), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_failing_midway_is_forwarded_and_settled() {
    for (name, dialect, sim) in FAMILIES {
        for fault in [Fault::StreamError { after: 3 }, Fault::Cut { after: 3 }] {
            let simulator = simulator(account(sim));
            let gateway = gateway(&simulator, upstream(name, dialect));
            simulator.inject(ACCOUNT, fault, 1).unwrap();
            let response = gateway.handle(chat(name, Mode::Stream), PEER).await;
            let read = read(response).await;
            match fault {
                Fault::Cut { .. } => {
                    assert!(matches!(read, Err(ResponseBodyError::ConnectionLost(_))), "{name}");
                }
                _ => assert!(read.unwrap().body.windows(5).any(|word| word == b"error"), "{name}"),
            }
            assert_eq!(simulator.ledger().seen(), 1, "a started stream is not retried");
            assert!(is_idle(&gateway), "{name}");
        }
    }
}

/// A deterministic random number generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_cancelled_streams_are_all_settled() {
    let mut rng = Rng(7);
    // A provider that charges actual usage.
    let slow = tidegate_sim::Account::new(tidegate_sim::Dialect::Mistral, ACCOUNT, KEY)
        .model(MODEL, Limits::new().tokens_per_minute(10_000_000))
        .first_token(Delay::between(MILLI * 50..=MILLI * 300))
        .per_token(Delay::between(MILLI * 5..=MILLI * 60))
        .output(Output::between(5..=20));
    let simulator = simulator(slow);
    let gateway = gateway(&simulator, upstream("mistral", tidegate_llm::Dialect::Mistral));
    // Complete calls teach the gateway how the model counts tokens.
    for _ in 0..20 {
        send(&gateway, chat("mistral", Mode::Stream)).await;
    }
    let mut streams = Vec::new();
    for _ in 0..1_000 {
        let cancel_after = MILLI * u32::try_from(rng.below(15_000)).unwrap();
        let gateway = gateway.clone();
        streams.push(tokio::spawn(async move {
            let call = async {
                let response =
                    read(gateway.handle(chat("mistral", Mode::Stream), PEER).await).await;
                assert_eq!(response.unwrap().status, 200);
            };
            timeout(cancel_after, call).await.is_ok()
        }));
    }
    let mut complete = 0;
    for stream in streams {
        complete += usize::from(stream.await.unwrap());
    }
    assert!((200..800).contains(&complete), "{complete}");
    tokio::time::sleep(SECOND * 10).await;
    let status = gateway.status().remove(0);
    assert_eq!((status.queued, status.in_flight), (0, 0));
    let seen = gateway.inspect().await.remove(0);
    let limits = seen.queues().flat_map(tidegate_llm::rate_limit::QueueView::all_limits);
    let mut tokens = limits.filter(|(_, limit)| limit.dimension == Some(Dimension::Tokens));
    let (_, ours) = tokens.next().unwrap();
    let theirs: u64 = simulator.ledger().entries().iter().map(|entry| entry.charged.total()).sum();
    let off = ours.charged.abs_diff(theirs) as f64 / theirs as f64;
    assert!(off < 0.01, "{} ours, {theirs} theirs, {complete} complete", ours.charged);
}

#[tokio::test(start_paused = true)]
async fn a_late_first_event_is_not_a_failure() {
    let (name, dialect, sim) = FAMILIES[1];
    let simulator = simulator(account(sim).first_token(Delay::fixed(SECOND * 119)));
    let gateway = gateway(&simulator, upstream(name, dialect));
    let response = send(&gateway, chat(name, Mode::Stream)).await;
    assert_eq!((response.status.as_u16(), response.number("x-tidegate-attempts")), (200, 1));
    settle().await;
    assert!(is_idle(&gateway));
}

const ERROR_CHUNKS: [&str; 2] =
    ["data: {\"error\":{\"mess", "age\":\"overloaded\",\"code\":503}}\n\n"];
const OK_STREAM: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"Elbe\"}}]}\n\ndata: [DONE]\n\n";

/// A gateway to a provider that sends `first` as its first response and `then` afterwards.
fn streaming_gateway(
    first: &'static [(Duration, &'static str)],
    then: &'static [(Duration, &'static str)],
) -> Gateway {
    let call = Arc::new(AtomicUsize::new(0));
    let http = service_fn(move |_: Request<RequestBody>| {
        let number = call.fetch_add(1, Ordering::Relaxed);
        let body = SlowBody::new(if number == 0 { first } else { then });
        let response = Response::builder().header("content-type", "text/event-stream").body(body);
        std::future::ready(Ok::<_, BoxError>(response.unwrap()))
    });
    let (name, dialect, _) = FAMILIES[0];
    Gateway::builder(&crate::support::engine())
        .http(http)
        .upstream(upstream(name, dialect))
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_split_or_delayed_error_event_is_detected() {
    const SPLIT: &[(Duration, &str)] = &[(MILLI, ERROR_CHUNKS[0]), (MILLI, ERROR_CHUNKS[1])];
    const BEHIND: &[(Duration, &str)] =
        &[(MILLI, ": keep-alive\n\n"), (MILLI, ERROR_CHUNKS[0]), (MILLI, ERROR_CHUNKS[1])];
    for first in [SPLIT, BEHIND] {
        let gateway = streaming_gateway(first, &[(MILLI, OK_STREAM)]);
        let response = send(&gateway, chat("openai", Mode::Stream)).await;
        assert_eq!(&response.body[..], OK_STREAM.as_bytes());
        assert_eq!(response.number("x-tidegate-attempts"), 2);
        assert!(is_idle(&gateway));
    }
}

#[tokio::test(start_paused = true)]
async fn comments_are_held_for_at_most_a_second() {
    const WAITING: &[(Duration, &str)] = &[
        (MILLI, ": keep-alive\n\n"),
        (Duration::from_millis(600), ": keep-alive\n\n"),
        (Duration::from_secs(59), OK_STREAM),
    ];
    let gateway = streaming_gateway(WAITING, &[]);
    let start = Instant::now();
    let mut response = gateway.handle(chat("openai", Mode::Stream), PEER).await;
    let first = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(&first[..], b": keep-alive\n\n: keep-alive\n\n");
    assert!((SECOND..SECOND + MILLI * 10).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!(&read(response).await.unwrap().body[..], OK_STREAM.as_bytes());
    assert!(is_idle(&gateway));
}
