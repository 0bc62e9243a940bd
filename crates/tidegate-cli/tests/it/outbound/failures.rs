//! Providers that answer with errors, and a table of all failures: what a caller is told, and when.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use tidegate_sim::{Fault, Faults, Hint, Limits};

use super::stage::{Gateway, Provider, Sdk};
use super::traffic::{CallOptions, Caller, Reply};
use super::{stalls, unreachable};

/// What a caller accepts to wait, and what it has to bear beyond that.
const MAX_WAIT_MS: u64 = 5_000;
const BOUND: Duration = Duration::from_secs(7);

/// How soon a wait that is too long is refused.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A model that answers every call with 500, and a caller that waits for 5 s.
fn always_500() -> (Reply, String) {
    let faults = Faults::new().on_calls(1..=u64::MAX, Fault::ServerError);
    let provider = Provider::start(Sdk::OPENAI.account().any_model(Limits::new()).faults(faults));
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    let options = CallOptions { max_wait_ms: Some(MAX_WAIT_MS), ..CallOptions::default() };
    let reply = Caller::new(&gateway).call(options);
    (reply, gateway.stop().stderr)
}

/// A lock-out of a minute that the provider tells of, and a caller that waits for 5 s.
fn locked_out() -> (Reply, String) {
    let provider = Provider::start(Sdk::OPENAI.account().any_model(Limits::new()));
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    let minute = Duration::from_secs(60);
    provider.simulator.lock_out(Sdk::OPENAI.name, minute, Hint::Told).unwrap();
    let options = CallOptions { max_wait_ms: Some(MAX_WAIT_MS), ..CallOptions::default() };
    let reply = Caller::new(&gateway).call(options);
    (reply, gateway.stop().stderr)
}

#[test]
fn a_model_that_always_fails_comes_back_as_its_own_error_after_some_attempts() {
    let (reply, log) = always_500();
    assert_eq!(reply.status, Some(500), "{reply:?}\n{log}");
    assert_eq!(reply.error()["type"], "server_error", "{reply:?}");
    assert!(!reply.message().contains("Tidegate"), "the provider's own words: {reply:?}");
    let attempts = reply.number("x-tidegate-attempts");
    assert!(attempts.is_some_and(|attempts| attempts >= 3), "{reply:?}\n{log}");
    assert!(reply.took < BOUND, "{reply:?}\n{log}");
}

/// A trouble, and how soon a caller is to be told of it.
struct Trouble {
    name: &'static str,
    bound: Duration,
    cause: fn() -> (Reply, String),
}

const TROUBLES: [Trouble; 7] = [
    Trouble { name: "connection refused", bound: unreachable::BOUND, cause: unreachable::refused },
    Trouble { name: "unknown host", bound: unreachable::BOUND, cause: unreachable::unknown_host },
    Trouble { name: "bad certificate", bound: unreachable::BOUND, cause: unreachable::certificate },
    Trouble { name: "no head (2 s)", bound: stalls::BOUND, cause: stalls::no_head },
    Trouble { name: "stalled stream (2 s)", bound: stalls::BOUND, cause: stalls::stalled_stream },
    Trouble { name: "always 500 (5 s)", bound: BOUND, cause: always_500 },
    Trouble { name: "locked out (5 s)", bound: AT_ONCE, cause: locked_out },
];

#[test]
#[expect(clippy::print_stdout, reason = "the table is for people")]
fn each_trouble_is_told_in_time() {
    let replies: Vec<_> = thread::scope(|scope| {
        let running = TROUBLES.map(|trouble| scope.spawn(trouble.cause));
        running.into_iter().map(|thread| thread.join().unwrap().0).collect()
    });
    let mut table =
        String::from("| trouble | status | told after | message |\n| --- | --- | --- | --- |\n");
    for (trouble, reply) in TROUBLES.iter().zip(&replies) {
        let (name, took) = (trouble.name, reply.took);
        let status = reply.status.map_or("none".to_owned(), |status| status.to_string());
        writeln!(table, "| {name} | {status} | {took:.1?} | {} |", reply.message()).unwrap();
    }
    println!("{table}");
    for (trouble, reply) in TROUBLES.iter().zip(&replies) {
        assert!(reply.took < trouble.bound, "{}: {:?}\n{table}", trouble.name, reply.took);
    }
}
