//! Observers are notified of every call, once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_gateway::{CallObserver, FinishedCall, Gateway, Outcome, Upstream};
use tidegate_llm::telemetry::{Acquired, Observer};
use tidegate_sim::{Delay, Fault, Simulator};
use tokio::time::timeout;

use crate::support::{
    ACCOUNT, FAMILIES, MODEL, Mode, PEER, SECOND, account, chat, per_minute, send, settle,
    simulator, upstream,
};
use crate::transport;

#[derive(Debug, Default)]
struct RecordingObserver(Mutex<Vec<RecordedCall>>);

#[derive(Clone, Debug, PartialEq)]
struct RecordedCall {
    model: String,
    outcome: Outcome,
    wait: Duration,
    limited_by: Option<&'static str>,
    attempts: u32,
    upstream_429s: u32,
    tokens: Option<(u64, u64)>,
    status: Option<u16>,
}

impl CallObserver for RecordingObserver {
    fn finished(&self, call: &FinishedCall<'_>) {
        self.0.lock().unwrap().push(RecordedCall {
            model: call.model.to_owned(),
            outcome: call.outcome,
            wait: call.wait,
            limited_by: call.limited_by,
            attempts: call.attempts,
            upstream_429s: call.upstream_429s,
            tokens: call.usage.map(|usage| (usage.input, usage.output)),
            status: call.status.map(|status| status.as_u16()),
        });
    }
}

impl RecordingObserver {
    fn take(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn take_one(&self) -> RecordedCall {
        let mut calls = self.take();
        assert_eq!(calls.len(), 1, "{calls:?}");
        calls.remove(0)
    }
}

fn observed_gateway(
    simulator: &Simulator,
    upstream: Upstream,
) -> (Gateway, Arc<RecordingObserver>) {
    let observer = Arc::new(RecordingObserver::default());
    let builder = Gateway::builder(&crate::support::engine()).http(transport::http(simulator));
    let gateway = builder.upstream(upstream).call_observer(observer.clone()).build().unwrap();
    (gateway, observer)
}

#[tokio::test(start_paused = true)]
async fn finished_calls_report_their_usage() {
    for (name, dialect, sim) in FAMILIES {
        for mode in [Mode::Single, Mode::Stream] {
            let simulator = simulator(account(sim));
            let (gateway, observer) =
                observed_gateway(&simulator, upstream(name, dialect).models([MODEL]));
            send(&gateway, chat(name, mode)).await;
            let call = observer.take_one();
            assert_eq!((call.outcome, call.status), (Outcome::Answered, Some(200)), "{name}");
            assert_eq!((call.model.as_str(), call.attempts), (MODEL, 1));
            assert_eq!(call.tokens, Some((2, 10)), "{name} {mode:?}");
        }
    }
}

/// Counts permits and ended calls.
#[derive(Debug, Default)]
struct Counts {
    permits: AtomicUsize,
    calls: AtomicUsize,
}

impl Observer for Counts {
    fn acquired(&self, _: &Acquired<'_>) {
        self.permits.fetch_add(1, Ordering::SeqCst);
    }
}

impl CallObserver for Counts {
    fn finished(&self, call: &FinishedCall<'_>) {
        assert!(call.details.is_none(), "no observer wants them");
        self.calls.fetch_add(1, Ordering::SeqCst);
    }
}

/// The second observer replaced the first one.
#[tokio::test(start_paused = true)]
async fn every_observer_is_notified() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let observers: [Arc<Counts>; 2] = Default::default();
    let builder = Gateway::builder(&crate::support::engine()).http(transport::http(&simulator));
    let builder = observers.iter().fold(builder, |builder, observer| {
        builder.observer(observer.clone()).call_observer(observer.clone())
    });
    let gateway = builder.upstream(upstream(name, dialect).models([MODEL])).build().unwrap();
    send(&gateway, chat(name, Mode::Single)).await;
    for observer in observers {
        assert_eq!(observer.permits.load(Ordering::SeqCst), 1);
        assert_eq!(observer.calls.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn every_outcome_is_reported_once() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim).per_token(Delay::fixed(SECOND)));
    let (gateway, observer) =
        observed_gateway(&simulator, upstream(name, dialect).limits(per_minute(60)));
    simulator.inject(ACCOUNT, Fault::RateLimited { retry_after: Some(SECOND) }, 1).unwrap();
    send(&gateway, chat(name, Mode::Single)).await;
    let call = observer.take_one();
    assert_eq!((call.upstream_429s, call.attempts, call.model.as_str()), (1, 2, "other"));
    assert!(call.wait >= SECOND, "{call:?}");

    simulator.inject(ACCOUNT, Fault::Cut { after: 3 }, 1).unwrap();
    let response = gateway.handle(chat(name, Mode::Stream), PEER).await;
    crate::support::read(response).await.unwrap_err();
    assert_eq!(observer.take_one().outcome, Outcome::Broken);

    drop(timeout(SECOND * 3, gateway.handle(chat(name, Mode::Stream), PEER)).await);
    settle().await;
    let call = observer.take_one();
    assert_eq!((call.outcome, call.attempts), (Outcome::Cancelled, 1));

    let mut no_wait = chat(name, Mode::Single);
    no_wait.headers_mut().insert("x-tidegate-max-wait-ms", "0".parse().unwrap());
    let first = gateway.handle(chat(name, Mode::Stream), PEER).await;
    assert_eq!(send(&gateway, no_wait).await.status, 429);
    let call = observer.take_one();
    assert_eq!((call.outcome, call.attempts, call.status), (Outcome::Refused, 0, Some(429)));
    drop(first);
    settle().await;
    observer.take();

    gateway.drain();
    send(&gateway, chat(name, Mode::Single)).await;
    assert_eq!(observer.take_one().outcome, Outcome::Drained);
}

#[tokio::test(start_paused = true)]
async fn waits_report_the_limiting_dimension() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let (gateway, observer) =
        observed_gateway(&simulator, upstream(name, dialect).limits(per_minute(60)));
    send(&gateway, chat(name, Mode::Single)).await;
    let response = send(&gateway, chat(name, Mode::Single)).await;
    assert_eq!(response.header("x-tidegate-limited-by"), "requests");
    assert!((900..=1_100).contains(&response.number("x-tidegate-wait-ms")));
    let calls = observer.take();
    assert_eq!(calls[1].limited_by, Some("requests"));
    assert_eq!(gateway.status()[0].binding, Some("requests"));
}
