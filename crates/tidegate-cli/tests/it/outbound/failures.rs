//! Providers that return errors, and a table of all failures: what a caller is told, and when.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use tidegate_sim::{Fault, Faults, Hint, Limits};

use super::fixtures::{Gateway, Provider, Sdk};
use super::traffic::{CallOptions, CallResult, Caller};
use super::{stalls, unreachable};

/// Maximum wait of the caller, and the bound that includes some tolerance.
const MAX_WAIT_MS: u64 = 5_000;
const BOUND: Duration = Duration::from_secs(7);

/// Bound for rejecting a wait that is too long.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Calls a model that always returns 500, with a maximum wait of 5 s.
fn always_500() -> (CallResult, String) {
    let faults = Faults::new().on_calls(1..=u64::MAX, Fault::ServerError);
    let provider = Provider::start(Sdk::OPENAI.account().any_model(Limits::new()).faults(faults));
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    let options = CallOptions { max_wait_ms: Some(MAX_WAIT_MS), ..CallOptions::default() };
    let reply = Caller::new(&gateway).call(options);
    (reply, gateway.stop().stderr)
}

/// Calls during a lock-out of one minute that the provider reports, with a maximum wait of 5 s.
fn locked_out() -> (CallResult, String) {
    let provider = Provider::start(Sdk::OPENAI.account().any_model(Limits::new()));
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    let minute = Duration::from_secs(60);
    provider.simulator.lock_out(Sdk::OPENAI.name, minute, Hint::Sent).unwrap();
    let options = CallOptions { max_wait_ms: Some(MAX_WAIT_MS), ..CallOptions::default() };
    let reply = Caller::new(&gateway).call(options);
    (reply, gateway.stop().stderr)
}

#[test]
fn failing_model_returns_its_own_error_after_retries() {
    let (reply, log) = always_500();
    assert_eq!(reply.status, Some(500), "{reply:?}\n{log}");
    assert_eq!(reply.error()["type"], "server_error", "{reply:?}");
    assert!(!reply.message().contains("Tidegate"), "the provider's own error: {reply:?}");
    let attempts = reply.number("x-tidegate-attempts");
    assert!(attempts.is_some_and(|attempts| attempts >= 3), "{reply:?}\n{log}");
    assert!(reply.took < BOUND, "{reply:?}\n{log}");
}

/// A failure, and the time within which it must be reported.
struct FailureCase {
    name: &'static str,
    bound: Duration,
    cause: fn() -> (CallResult, String),
}

const FAILURE_CASES: [FailureCase; 7] = [
    FailureCase {
        name: "connection refused",
        bound: unreachable::BOUND,
        cause: unreachable::refused,
    },
    FailureCase {
        name: "unknown host",
        bound: unreachable::BOUND,
        cause: unreachable::unknown_host,
    },
    FailureCase {
        name: "bad certificate",
        bound: unreachable::BOUND,
        cause: unreachable::certificate,
    },
    FailureCase { name: "no head (2 s)", bound: stalls::BOUND, cause: stalls::no_head },
    FailureCase {
        name: "stalled stream (2 s)",
        bound: stalls::BOUND,
        cause: stalls::stalled_stream,
    },
    FailureCase { name: "always 500 (5 s)", bound: BOUND, cause: always_500 },
    FailureCase { name: "locked out (5 s)", bound: AT_ONCE, cause: locked_out },
];

#[test]
#[expect(clippy::print_stdout, reason = "the table is printed for information")]
fn each_failure_is_reported_in_time() {
    let replies: Vec<_> = thread::scope(|scope| {
        let running = FAILURE_CASES.map(|case| scope.spawn(case.cause));
        running.into_iter().map(|thread| thread.join().unwrap().0).collect()
    });
    let mut table = String::from(
        "| failure | status | reported after | message |\n| --- | --- | --- | --- |\n",
    );
    for (case, reply) in FAILURE_CASES.iter().zip(&replies) {
        let (name, took) = (case.name, reply.took);
        let status = reply.status.map_or("none".to_owned(), |status| status.to_string());
        writeln!(table, "| {name} | {status} | {took:.1?} | {} |", reply.message()).unwrap();
    }
    println!("{table}");
    for (case, reply) in FAILURE_CASES.iter().zip(&replies) {
        assert!(reply.took < case.bound, "{}: {:?}\n{table}", case.name, reply.took);
    }
}
