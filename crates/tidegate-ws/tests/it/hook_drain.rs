//! Hook calls that are queued when an application exits.

use std::sync::mpsc;
use std::time::Duration;

use tidegate::now_or_never;
use tidegate_ws::{Gate, LimitExceeded, Peer, RefusalReason};
use tokio::time::timeout;

use crate::fixture::{Fixture, Session, is_accepted, refusal_reason};

/// Long enough to be exceeded only by a hang.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A gate whose hook waits for the test before each call, and the calls that have ended.
fn blocked() -> (Gate<Session>, mpsc::Sender<()>, mpsc::Receiver<LimitExceeded>) {
    let (release, blocked) = mpsc::channel::<()>();
    let (sender, calls) = mpsc::channel();
    let gate = Gate::for_types(["SAY"])
        .limit(Fixture::new().limiter("say", 1, 1))
        .on_limit_exceeded(move |exceeded| {
            let _ = blocked.recv_timeout(TIMEOUT);
            sender.send(exceeded).unwrap();
        })
        .build()
        .unwrap();
    (gate, release, calls)
}

/// Refuses this many messages of a new user.
fn refuse(gate: &Gate<Session>, user: &str, messages: usize) {
    let mut connection = gate.connect(Peer::new(Session::of(user)));
    assert!(is_accepted(&mut connection, "SAY"));
    for _ in 0..messages {
        assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
    }
}

/// Nothing waited for the thread of the hook, so that an application that exited lost its calls
/// without a trace.
#[tokio::test]
async fn drain_waits_for_queued_calls() {
    let (gate, release, calls) = blocked();
    gate.drain_hook().await;
    refuse(&gate, "alice", 5);
    assert_eq!(gate.hook_stats().pending, 5);
    assert!(now_or_never(gate.drain_hook()).is_none());
    for _ in 0..4 {
        release.send(()).unwrap();
    }
    for _ in 0..4 {
        calls.recv_timeout(TIMEOUT).unwrap();
    }
    assert!(now_or_never(gate.drain_hook()).is_none(), "one call is running");
    release.send(()).unwrap();
    timeout(TIMEOUT, gate.drain_hook()).await.unwrap();
    assert_eq!(calls.try_iter().count(), 1);
    assert_eq!(gate.hook_stats().pending, 0);
}

/// A panic ends a call too.
#[tokio::test]
async fn drain_does_not_wait_for_calls_that_panicked() {
    let gate = Gate::for_types(["SAY"])
        .limit(Fixture::new().limiter("say", 1, 1))
        .on_limit_exceeded(|_| panic!("hook bug"))
        .build()
        .unwrap();
    refuse(&gate, "alice", 3);
    timeout(TIMEOUT, gate.drain_hook()).await.unwrap();
    assert_eq!((gate.hook_stats().pending, gate.hook_stats().panicked), (0, 3));
}

/// A gate without a hook has nothing to wait for.
#[test]
fn gate_without_a_hook_is_drained() {
    let gate = Gate::for_types(["SAY"]).limit(Fixture::new().limiter("say", 1, 1)).build().unwrap();
    refuse(&gate, "alice", 3);
    assert_eq!(now_or_never(gate.drain_hook()), Some(()));
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn closing_the_sockets_drains_the_hook() {
    let (gate, release, calls) = blocked();
    let sockets = tidegate_ws::Sockets::new(gate.clone());
    refuse(&gate, "alice", 3);
    let closer = sockets.clone();
    let closing = tokio::spawn(async move { closer.close(TIMEOUT).await });
    for _ in 0..3 {
        release.send(()).unwrap();
    }
    timeout(TIMEOUT, closing).await.unwrap().unwrap();
    assert_eq!(calls.try_iter().count(), 3);
}

/// A hook that blocks delays the end only until the timeout, and what is lost is not lost silently.
#[cfg(feature = "axum")]
#[test]
fn calls_that_are_left_at_the_timeout_are_logged() {
    let lines = crate::hooks::log_of(|| {
        let (gate, _release, _calls) = blocked();
        refuse(&gate, "alice", 3);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let sockets = tidegate_ws::Sockets::new(gate.clone());
        runtime.block_on(sockets.close(Duration::from_millis(10)));
        assert_eq!(gate.hook_stats().pending, 3);
    });
    let last = lines.last().unwrap();
    assert_eq!(last, "WARN limit hook did not finish before the timeout pending=3");
}
