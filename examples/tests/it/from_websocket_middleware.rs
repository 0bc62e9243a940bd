//! The programs in `docs/from-websocket-middleware.md`: they decide as the page says, and it shows
//! them verbatim.
#![allow(missing_docs, unreachable_pub, reason = "the programs are written as users would")]
#![allow(clippy::print_stdout, reason = "the program shows what its hook is told")]

mod consume;
mod tiers;

use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate::{Engine, MemoryStore, Policy, now_or_never};
use tidegate_ws::{Connection, Gate, MessageDecision, Peer, RefusalReason};

use crate::page::assert_shows;

#[test]
fn the_page_shows_the_programs() {
    assert_shows(
        "docs/from-websocket-middleware.md",
        include_str!("../../../docs/from-websocket-middleware.md"),
        &[
            (
                "from_websocket_middleware/tiers.rs",
                include_str!("from_websocket_middleware/tiers.rs"),
            ),
            (
                "from_websocket_middleware/consume.rs",
                include_str!("from_websocket_middleware/consume.rs"),
            ),
        ],
    );
}

fn connect(
    gate: &Gate<tiers::Session>,
    user: &str,
    is_premium: bool,
) -> Connection<tiers::Session> {
    gate.connect(Peer::new(tiers::Session { tenant: None, user: Some(user.into()), is_premium }))
}

fn send(connection: &mut Connection<tiers::Session>, frame: &str) -> Option<RefusalReason> {
    match now_or_never(connection.ingress(frame)).unwrap().unwrap() {
        MessageDecision::Accepted(_) => None,
        MessageDecision::Refused(refusal) => Some(refusal.reason()),
    }
}

#[test]
fn tiers_and_costs_limit_as_the_page_says() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let gate = tiers::gate(&Engine::on(store)).unwrap();
    let (message, compute) = (r#"{"type":"SendMessage"}"#, r#"{"type":"Compute"}"#);
    let mut alice = connect(&gate, "alice", false);
    // Two times five of ten tokens; other types have their own ten.
    assert_eq!([0; 3].map(|_| send(&mut alice, compute)), [None, None, Some(RefusalReason::Rate)]);
    for _ in 0..10 {
        assert_eq!(send(&mut alice, message), None);
    }
    assert_eq!(send(&mut alice, message), Some(RefusalReason::Rate));
    // A token per half second: one message, and not another.
    clock.advance(Duration::from_millis(500));
    assert_eq!(send(&mut alice, message), None);
    assert_eq!(send(&mut alice, message), Some(RefusalReason::Rate));
    assert_eq!(send(&mut connect(&gate, "bob", true), compute), None);
}

#[tokio::test]
async fn consume_returns_what_the_page_says() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let policy = Policy::per_second(1).capacity(10).build().unwrap();
    let limiter = Engine::on(store).limiter("api", policy).unwrap();
    assert_eq!(consume::consume(&limiter, "user:1", 3).await.unwrap(), Ok(7));
    assert_eq!(consume::consume(&limiter, "user:1", 8).await.unwrap(), Err(Some(1_000)));
    assert_eq!(consume::consume(&limiter, "user:1", 11).await.unwrap(), Err(None));
}
