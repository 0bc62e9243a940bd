//! Who is told of exceeded limits, how often, and that nobody waits for it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tidegate::now_or_never;

use tidegate_ws::{
    Counter, Gate, GateBuilder, HOOK_QUEUE, Histogram, HookStats, Observer, OnExceeded, Peer,
    RefusalReason,
};

use crate::servers::{BOTH, serve};
use crate::session::{Bench, Session, frame, passes, refused};

fn gate(bench: &Bench) -> GateBuilder<Session> {
    Gate::for_types(["SAY"]).limit(bench.limiter("say", 1, 1)).max_payload(50)
}

/// Long enough that only a hang is longer.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn the_hook_is_told_once_of_every_limited_message_under_every_behaviour() {
    for behaviour in [OnExceeded::Send, OnExceeded::Close { code: None }, OnExceeded::Custom] {
        let bench = Bench::new();
        let (tell, told) = mpsc::channel();
        let gate = gate(&bench)
            .on_exceeded(behaviour)
            .on_limit_exceeded(move |exceeded| tell.send(exceeded).unwrap())
            .build()
            .unwrap();
        // A connection that is told to close is told nothing else, so each message has its own.
        let connect = || gate.connect(Peer::new(Session::of("alice")).id("c-1"));
        assert!(passes(&mut connect(), "SAY"));
        for _ in 0..100 {
            assert_eq!(refused(&mut connect(), "SAY"), RefusalReason::Rate);
            assert!(now_or_never(connect().ingress("x".repeat(51))).unwrap().is_ok());
            assert!(now_or_never(connect().ingress("no json")).unwrap().is_ok());
        }
        assert_eq!(gate.hook_stats(), HookStats::default());
        drop(gate);
        // The channel ends with the thread of the hook, after everything was told.
        let told: Vec<String> =
            told.iter().map(|exceeded| serde_json::to_string(&exceeded).unwrap()).collect();
        assert_eq!(told.len(), 200);
        for pair in told.chunks(2) {
            assert_eq!(
                pair,
                [
                    r#"{"type":"rate","observed":1,"limit":1,"retryAfterMs":1000,"clientId":"c-1"}"#,
                    r#"{"type":"payload","observed":51,"limit":50,"retryAfterMs":null,"clientId":"c-1"}"#,
                ]
            );
        }
    }
}

#[tokio::test]
async fn a_hook_that_blocks_delays_no_answer() {
    for library in BOTH {
        let bench = Bench::new();
        let (begun, begins) = mpsc::channel();
        let (let_go, blocked) = mpsc::channel::<()>();
        let gate = gate(&bench)
            .on_limit_exceeded(move |_| {
                begun.send(()).unwrap();
                // It stands still until the test says otherwise.
                let _ = blocked.recv_timeout(PATIENCE);
            })
            .build()
            .unwrap();
        let server = serve(library, Some(gate), |_| Peer::new(Session::of("alice"))).await;
        let mut client = server.client().await;
        client.ask(&frame("SAY")).await;
        for _ in 0..3 {
            let answer = client.ask(&frame("SAY")).await;
            assert!(answer.contains("RESOURCE_EXHAUSTED"), "{answer}");
        }
        begins.recv().unwrap();
        // Three answers are here, and the hook is still in its first call.
        assert!(begins.try_recv().is_err());
        for _ in 0..3 {
            let_go.send(()).unwrap();
        }
        begins.recv().unwrap();
        begins.recv().unwrap();
    }
}

/// Under `Custom` the count is all that is left of them.
#[test]
fn what_the_hook_is_too_slow_for_is_counted() {
    for behaviour in [OnExceeded::Send, OnExceeded::Custom] {
        let bench = Bench::new();
        let (begun, begins) = mpsc::channel();
        let (let_go, blocked) = mpsc::channel::<()>();
        let counts = Arc::new(Counts::default());
        let gate = gate(&bench)
            .on_exceeded(behaviour)
            .observer(counts.clone())
            .on_limit_exceeded(move |_| {
                begun.send(()).unwrap();
                let _ = blocked.recv_timeout(PATIENCE);
            })
            .build()
            .unwrap();
        let mut connection = gate.connect(Peer::new(Session::of("alice")));
        assert!(passes(&mut connection, "SAY"));
        assert_eq!(refused(&mut connection, "SAY"), RefusalReason::Rate);
        begins.recv().unwrap();
        // One is being told; these fill the queue, and the last seven find no room.
        for _ in 0..HOOK_QUEUE + 7 {
            assert_eq!(refused(&mut connection, "SAY"), RefusalReason::Rate);
        }
        assert_eq!(gate.hook_stats().dropped, 7);
        assert_eq!(counts.hook_dropped.load(Ordering::SeqCst), 7);
        drop(let_go);
        drop((connection, gate));
        assert_eq!(begins.iter().count(), HOOK_QUEUE);
    }
}

#[test]
fn a_hook_that_panics_is_counted_and_called_again() {
    let bench = Bench::new();
    let (tell, told) = mpsc::channel();
    let counts = Arc::new(Counts::default());
    let mut call = 0;
    let gate = gate(&bench)
        .observer(counts.clone())
        .on_limit_exceeded(move |_| {
            call += 1;
            tell.send(call).unwrap();
            assert!(call % 2 == 0, "an odd call");
        })
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert!(passes(&mut connection, "SAY"));
    for expected in 1..=4 {
        assert_eq!(refused(&mut connection, "SAY"), RefusalReason::Rate);
        assert_eq!(told.recv().unwrap(), expected);
    }
    // The fourth call is told of after the third has been counted.
    assert_eq!((gate.hook_stats().panicked, gate.hook_stats().observer_panicked), (2, 0));
    assert_eq!(counts.hook_panicked.load(Ordering::SeqCst), 2);
}

/// An observer that is of no use.
struct Broken;

impl Observer for Broken {
    fn count(&self, counter: Counter) {
        panic!("{}", counter.name());
    }

    fn record(&self, histogram: Histogram, _: u64) {
        panic!("{}", histogram.name());
    }
}

#[test]
fn an_observer_that_panics_fails_no_message_and_ends_no_hook() {
    let bench = Bench::new();
    let (tell, told) = mpsc::channel();
    let gate = gate(&bench)
        .observer(Arc::new(Broken))
        .on_limit_exceeded(move |_| {
            tell.send(()).unwrap();
            panic!("and so is the hook");
        })
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert!(passes(&mut connection, "SAY"));
    for _ in 0..3 {
        assert_eq!(refused(&mut connection, "SAY"), RefusalReason::Rate);
    }
    // The hook panics each time, the observer when it is to count that, and the thread goes on.
    for _ in 0..3 {
        told.recv_timeout(PATIENCE).unwrap();
    }
    // A count and a hint for each message, and the panics of at least two calls of the hook.
    let stats = gate.hook_stats();
    assert!(stats.panicked >= 2, "{stats:?}");
    assert!((8..=9).contains(&stats.observer_panicked), "{stats:?}");
}

#[test]
fn the_thread_of_the_hook_outlives_no_connection_and_no_gate() {
    let bench = Bench::new();
    let (tell, told) = mpsc::channel();
    let gate = gate(&bench).on_limit_exceeded(move |_| tell.send(()).unwrap()).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    drop(gate);
    assert!(passes(&mut connection, "SAY"));
    assert_eq!(refused(&mut connection, "SAY"), RefusalReason::Rate);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(()), "the connection keeps it");
    drop(connection);
    assert_eq!(told.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

#[derive(Default)]
struct Counts {
    payload: AtomicU64,
    rate: AtomicU64,
    hook_panicked: AtomicU64,
    hook_dropped: AtomicU64,
    recorded: Mutex<Vec<(&'static str, u64)>>,
}

impl Observer for Counts {
    fn count(&self, counter: Counter) {
        let count = match counter.name() {
            "limits.payload_exceeded" => &self.payload,
            "limits.rate_exceeded" => &self.rate,
            "limits.hook_panicked" => &self.hook_panicked,
            "limits.hook_dropped" => &self.hook_dropped,
            other => panic!("{other}"),
        };
        count.fetch_add(1, Ordering::SeqCst);
    }

    fn record(&self, histogram: Histogram, value: u64) {
        self.recorded.lock().unwrap().push((histogram.name(), value));
    }
}

#[test]
fn counters_count_and_hints_are_observations() {
    let bench = Bench::new();
    let counts = Arc::new(Counts::default());
    let gate =
        gate(&bench).on_exceeded(OnExceeded::Custom).observer(counts.clone()).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert!(passes(&mut connection, "SAY"));
    assert_eq!(refused(&mut connection, "SAY"), RefusalReason::Rate);
    bench.clock.advance(Duration::from_millis(400));
    assert_eq!(refused(&mut connection, "SAY"), RefusalReason::Rate);
    assert!(now_or_never(connection.ingress("x".repeat(77))).unwrap().is_ok());
    assert_eq!(gate.hook_stats(), HookStats::default());
    assert_eq!(counts.rate.load(Ordering::SeqCst), 2);
    assert_eq!(counts.payload.load(Ordering::SeqCst), 1);
    assert_eq!(
        *counts.recorded.lock().unwrap(),
        [
            ("limits.retry_after_ms", 1_000),
            ("limits.retry_after_ms", 600),
            ("limits.payload_bytes", 77)
        ]
    );
}

/// Where events are written to.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// With one listener alone, a place that logs for the first time goes by whether its own thread
/// listens, and remembers that: a test beside could silence it.
static SECOND_LISTENER: LazyLock<tracing::Dispatch> = LazyLock::new(|| {
    let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    everything.with_writer(io::sink).finish().into()
});

/// What is logged while a client named alice exceeds both limits.
fn logged(build: impl Fn(GateBuilder<Session>) -> GateBuilder<Session>) -> Vec<String> {
    LazyLock::force(&SECOND_LISTENER);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let bench = Bench::new();
        let gate = build(gate(&bench)).build().unwrap();
        let peer = Peer::new(Session::of("alice")).id("c-1").ip("203.0.113.9".parse().unwrap());
        let mut connection = gate.connect(peer);
        assert!(passes(&mut connection, "SAY"));
        assert_eq!(refused(&mut connection, "SAY"), RefusalReason::Rate);
        assert!(now_or_never(connection.ingress("x".repeat(51))).unwrap().is_ok());
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn warnings_have_the_numbers_and_name_nobody() {
    assert_eq!(
        logged(|gate| gate),
        [
            "WARN rate_limited observed=1 limit=1 retry_after_ms=1000",
            "WARN payload_exceeded observed=51 limit=50"
        ]
    );
}

#[test]
fn warnings_name_connections_if_that_is_asked_for() {
    assert_eq!(
        logged(GateBuilder::log_client_ids),
        [
            r#"WARN rate_limited client_id="c-1" observed=1 limit=1 retry_after_ms=1000"#,
            r#"WARN payload_exceeded client_id="c-1" observed=51 limit=50"#
        ]
    );
}
