//! Hook, observer and log events of exceeded limits.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tidegate::now_or_never;

use tidegate_ws::{
    Counter, Gate, GateBuilder, HOOK_QUEUE_CAPACITY, Histogram, HookStats, KeyParts, MessageRule,
    Observer, OnExceeded, Peer, RefusalReason,
};

use crate::fixture::{Fixture, Session, frame, is_accepted, refusal_reason};
use crate::servers::{BOTH, serve};

fn gate(fixture: &Fixture) -> GateBuilder<Session> {
    Gate::for_types(["SAY"]).limit(fixture.limiter("say", 1, 1)).max_payload(50)
}

/// Long enough to be exceeded only by a hang.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn hook_is_called_once_per_limited_message_for_every_action() {
    for action in [OnExceeded::Send, OnExceeded::Close { code: None }, OnExceeded::Custom] {
        let fixture = Fixture::new();
        let (sender, receiver) = mpsc::channel();
        let gate = gate(&fixture)
            .on_exceeded(action)
            .on_limit_exceeded(move |exceeded| sender.send(exceeded).unwrap())
            .build()
            .unwrap();
        // A closing connection gets no further replies, so each message has its own connection.
        let connect = || gate.connect(Peer::new(Session::of("alice")).id("c-1"));
        assert!(is_accepted(&mut connect(), "SAY"));
        for _ in 0..100 {
            assert_eq!(refusal_reason(&mut connect(), "SAY"), RefusalReason::Rate);
            assert!(now_or_never(connect().ingress("x".repeat(51))).unwrap().is_ok());
            assert!(now_or_never(connect().ingress("no json")).unwrap().is_ok());
        }
        assert_eq!((gate.hook_stats().dropped, gate.hook_stats().panicked), (0, 0));
        drop(gate);
        // The channel closes with the hook thread, after all calls.
        let calls: Vec<String> =
            receiver.iter().map(|exceeded| serde_json::to_string(&exceeded).unwrap()).collect();
        assert_eq!(calls.len(), 200);
        for pair in calls.chunks(2) {
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
async fn blocking_hook_delays_no_reply() {
    for library in BOTH {
        let fixture = Fixture::new();
        let (started, starts) = mpsc::channel();
        let (release, blocked) = mpsc::channel::<()>();
        let gate = gate(&fixture)
            .on_limit_exceeded(move |_| {
                started.send(()).unwrap();
                // Block until the test releases it.
                let _ = blocked.recv_timeout(TIMEOUT);
            })
            .build()
            .unwrap();
        let server = serve(library, Some(gate), |_| Peer::new(Session::of("alice"))).await;
        let mut client = server.client().await;
        client.request(&frame("SAY")).await;
        for _ in 0..3 {
            let reply = client.request(&frame("SAY")).await;
            assert!(reply.contains("RESOURCE_EXHAUSTED"), "{reply}");
        }
        starts.recv().unwrap();
        // Three replies have arrived, and the hook is still in its first call.
        assert!(starts.try_recv().is_err());
        for _ in 0..3 {
            release.send(()).unwrap();
        }
        starts.recv().unwrap();
        starts.recv().unwrap();
    }
}

/// With `Custom`, the count is their only trace.
#[test]
fn calls_beyond_the_queue_are_counted() {
    for action in [OnExceeded::Send, OnExceeded::Custom] {
        let fixture = Fixture::new();
        let (started, starts) = mpsc::channel();
        let (release, blocked) = mpsc::channel::<()>();
        let counts = Arc::new(Counts::default());
        let gate = gate(&fixture)
            .on_exceeded(action)
            .observer(counts.clone())
            .on_limit_exceeded(move |_| {
                started.send(()).unwrap();
                let _ = blocked.recv_timeout(TIMEOUT);
            })
            .build()
            .unwrap();
        let mut connection = gate.connect(Peer::new(Session::of("alice")));
        assert!(is_accepted(&mut connection, "SAY"));
        assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
        starts.recv().unwrap();
        // One call is running; these fill the queue, and the last seven are dropped.
        for _ in 0..HOOK_QUEUE_CAPACITY + 7 {
            assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
        }
        assert_eq!(gate.hook_stats().dropped, 7);
        assert_eq!(counts.hook_dropped.load(Ordering::SeqCst), 7);
        drop(release);
        drop((connection, gate));
        assert_eq!(starts.iter().count(), HOOK_QUEUE_CAPACITY);
    }
}

#[test]
fn panicking_hook_is_counted_and_called_again() {
    let fixture = Fixture::new();
    let (sender, receiver) = mpsc::channel();
    let counts = Arc::new(Counts::default());
    let mut call = 0;
    let gate = gate(&fixture)
        .observer(counts.clone())
        .on_limit_exceeded(move |_| {
            call += 1;
            sender.send(call).unwrap();
            assert!(call % 2 == 0, "an odd call");
        })
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert!(is_accepted(&mut connection, "SAY"));
    for expected in 1..=4 {
        assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
        assert_eq!(receiver.recv().unwrap(), expected);
    }
    // The fourth call starts after the third has been counted.
    assert_eq!((gate.hook_stats().panicked, gate.hook_stats().observer_panicked), (2, 0));
    assert_eq!(counts.hook_panicked.load(Ordering::SeqCst), 2);
}

/// An observer that always panics.
struct PanickingObserver;

impl Observer for PanickingObserver {
    fn count(&self, counter: Counter) {
        panic!("{}", counter.name());
    }

    fn record(&self, histogram: Histogram, _: u64) {
        panic!("{}", histogram.name());
    }
}

#[test]
fn panicking_observer_affects_neither_messages_nor_the_hook() {
    let fixture = Fixture::new();
    let (sender, receiver) = mpsc::channel();
    let gate = gate(&fixture)
        .observer(Arc::new(PanickingObserver))
        .on_limit_exceeded(move |_| {
            sender.send(()).unwrap();
            panic!("hook bug");
        })
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert!(is_accepted(&mut connection, "SAY"));
    for _ in 0..3 {
        assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
    }
    // The hook panics each time, and so does the observer on counting it, but the thread continues.
    for _ in 0..3 {
        receiver.recv_timeout(TIMEOUT).unwrap();
    }
    // The new bucket of the first message, a count and a hint for each other one, and the panics of
    // at least two hook calls.
    let stats = gate.hook_stats();
    assert!(stats.panicked >= 2, "{stats:?}");
    assert!((9..=10).contains(&stats.observer_panicked), "{stats:?}");
}

#[test]
fn hook_thread_ends_with_the_last_connection() {
    let fixture = Fixture::new();
    let (sender, receiver) = mpsc::channel();
    let gate = gate(&fixture).on_limit_exceeded(move |_| sender.send(()).unwrap()).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    drop(gate);
    assert!(is_accepted(&mut connection, "SAY"));
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
    assert_eq!(receiver.recv_timeout(TIMEOUT), Ok(()), "the connection keeps the thread alive");
    drop(connection);
    assert_eq!(receiver.recv_timeout(TIMEOUT), Err(RecvTimeoutError::Disconnected));
}

#[derive(Default)]
struct Counts {
    payload: AtomicU64,
    rate: AtomicU64,
    hook_panicked: AtomicU64,
    hook_dropped: AtomicU64,
    new_buckets: AtomicU64,
    recorded: Mutex<Vec<(&'static str, u64)>>,
}

impl Observer for Counts {
    fn count(&self, counter: Counter) {
        let count = match counter.name() {
            "limits.payload_exceeded" => &self.payload,
            "limits.rate_exceeded" => &self.rate,
            "limits.hook_panicked" => &self.hook_panicked,
            "limits.hook_dropped" => &self.hook_dropped,
            "limits.new_buckets" => &self.new_buckets,
            other => panic!("{other}"),
        };
        count.fetch_add(1, Ordering::SeqCst);
    }

    fn record(&self, histogram: Histogram, value: u64) {
        self.recorded.lock().unwrap().push((histogram.name(), value));
    }
}

#[test]
fn counters_and_histograms_are_recorded() {
    let fixture = Fixture::new();
    let counts = Arc::new(Counts::default());
    let gate =
        gate(&fixture).on_exceeded(OnExceeded::Custom).observer(counts.clone()).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert!(is_accepted(&mut connection, "SAY"));
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
    fixture.clock.advance(Duration::from_millis(400));
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
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

/// Buffer for log events.
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

/// With a single subscriber, `tracing` caches the interest of a callsite by the thread that reaches
/// it first, so a concurrent test without a subscriber could silence it.
static SECOND_SUBSCRIBER: LazyLock<tracing::Dispatch> = LazyLock::new(|| {
    let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    everything.with_writer(io::sink).finish().into()
});

/// Log lines of a client named alice that exceeds both limits.
fn logged(
    build: impl Fn(GateBuilder<Session>) -> GateBuilder<Session>,
    peer: impl Fn(Peer<Session>) -> Peer<Session>,
) -> Vec<String> {
    log_of(|| {
        let fixture = Fixture::new();
        let gate = build(gate(&fixture)).build().unwrap();
        let alice = Peer::new(Session::of("alice")).ip("203.0.113.9".parse().unwrap());
        let mut connection = gate.connect(peer(alice));
        assert!(is_accepted(&mut connection, "SAY"));
        assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
        assert!(now_or_never(connection.ingress("x".repeat(51))).unwrap().is_ok());
    })
}

/// Log lines of `run`.
pub(crate) fn log_of(run: impl FnOnce()) -> Vec<String> {
    LazyLock::force(&SECOND_SUBSCRIBER);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn warnings_do_not_identify_clients() {
    assert_eq!(
        logged(|gate| gate, |peer| peer.id("c-1")),
        [
            "WARN rate_limited observed=1 limit=1 retry_after_ms=1000",
            "WARN payload_exceeded observed=51 limit=50"
        ]
    );
}

#[test]
fn warnings_contain_client_ids_if_enabled() {
    assert_eq!(
        logged(GateBuilder::log_client_ids, |peer| peer.id("c-1")),
        [
            r#"WARN rate_limited client_id="c-1" observed=1 limit=1 retry_after_ms=1000"#,
            r#"WARN payload_exceeded client_id="c-1" observed=51 limit=50"#
        ]
    );
}

/// R256: a generated id identifies no person.
#[test]
fn warnings_contain_generated_ids() {
    let lines = logged(|gate| gate, |peer| peer);
    assert_eq!(lines.len(), 2);
    for (line, rest) in
        lines.iter().zip(["observed=1 limit=1 retry_after_ms=1000", "observed=51 limit=50"])
    {
        let (_, fields) = line.split_once("client_id=\"").unwrap();
        let (id, found) = fields.split_once("\" ").unwrap();
        assert!(id.ends_with("-0") && id.len() == 34, "{line}");
        assert_eq!(found, rest);
    }
}

/// R246: what the hook misses is logged too, in one line and not in one per message.
#[test]
fn dropped_hook_calls_are_logged_once() {
    let lines = log_of(|| {
        let fixture = Fixture::new();
        let (started, starts) = mpsc::channel();
        let (release, blocked) = mpsc::channel::<()>();
        let gate = gate(&fixture)
            .on_limit_exceeded(move |_| {
                started.send(()).unwrap();
                let _ = blocked.recv_timeout(TIMEOUT);
            })
            .build()
            .unwrap();
        let mut connection = gate.connect(Peer::new(Session::of("alice")));
        assert!(is_accepted(&mut connection, "SAY"));
        assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
        starts.recv().unwrap();
        for _ in 0..HOOK_QUEUE_CAPACITY + 7 {
            assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
        }
        drop(release);
    });
    let dropped: Vec<_> =
        lines.iter().filter(|line| line.contains("limit hook is behind")).collect();
    assert_eq!(dropped, ["WARN limit hook is behind; calls dropped dropped=1 queued=1024"]);
}

/// R223: a key function that returns a new key for every message shows on every store.
#[test]
fn new_buckets_are_counted() {
    let fixture = Fixture::new();
    let counts = Arc::new(Counts::default());
    let new_buckets = || counts.new_buckets.load(Ordering::SeqCst);
    let gate = Gate::for_types(["SAY"])
        .limit(fixture.limiter("say", 1, 3))
        .observer(counts.clone())
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert!(is_accepted(&mut connection, "SAY") && is_accepted(&mut connection, "SAY"));
    assert_eq!(new_buckets(), 1);
    // Full again but for a nanosecond, and full.
    fixture.clock.advance(Duration::from_nanos(1_999_999_999));
    assert!(is_accepted(&mut connection, "SAY"));
    assert_eq!(new_buckets(), 1);
    fixture.clock.advance(Duration::from_secs(2));
    assert!(is_accepted(&mut connection, "SAY"));
    assert_eq!(new_buckets(), 2);

    let number = AtomicU64::new(0);
    let wrong = MessageRule::new(fixture.limiter("wrong", 1, 1)).key(move |_| {
        KeyParts::from(["message"]).and(number.fetch_add(1, Ordering::Relaxed).to_string())
    });
    let slots = fixture.limiter_with("slots", tidegate::Policy::concurrency(9, None).unwrap());
    let gate = Gate::for_types(["SAY"])
        .limit(wrong)
        .limit(slots)
        .observer(counts.clone())
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    for _ in 0..500 {
        assert!(is_accepted(&mut connection, "SAY"));
    }
    assert_eq!(new_buckets(), 2 + 500, "one for each message, and none for its slot");
}
