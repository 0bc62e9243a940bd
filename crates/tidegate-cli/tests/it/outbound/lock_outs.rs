//! Providers that reject all calls of an account for a time.

use std::time::Duration;

use tidegate_sim::{Fault, Faults, Hint, Limits};

use super::fixtures::{Gateway, Provider, Sdk};
use super::traffic::{CallOptions, Caller, ConcurrentCalls};

const MINUTE: Duration = Duration::from_secs(60);

/// Runs four workers during a lock-out of one minute, with default settings.
fn assert_workers_succeed(hint: Hint) {
    let provider = Provider::start(Sdk::OPENAI.account().any_model(Limits::new()));
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    provider.simulator.lock_out(Sdk::OPENAI.name, MINUTE, hint).unwrap();
    let calls = ConcurrentCalls::run(&gateway, 4, 100);
    let (throttled, log) = (provider.simulator.ledger().throttled(), gateway.stop().stderr);
    assert_eq!(calls.answered(), 4, "{throttled} throttled; {calls}\n{log}");
    assert!(throttled > 0, "the lock-out took effect");
}

#[test]
fn four_workers_survive_a_lock_out_with_a_hint() {
    assert_workers_succeed(Hint::Sent);
}

#[test]
fn four_workers_survive_a_lock_out_without_a_hint() {
    assert_workers_succeed(Hint::Withheld);
}

/// The second attempt reports a wait that is longer than the caller accepts. The log must say that,
/// not that the call can never succeed.
#[test]
fn too_long_wait_after_a_retry_is_not_logged_as_permanent() {
    let soon = Fault::RateLimited { retry_after: Some(Duration::from_millis(300)) };
    let later = Fault::LockOut { length: MINUTE, hint: Hint::Sent };
    let faults = Faults::new().on_call(1, soon).on_calls(2..=u64::MAX, later);
    let provider = Provider::start(Sdk::OPENAI.account().any_model(Limits::new()).faults(faults));
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "max_wait = \"5s\"");
    let caller = Caller::new(&gateway);
    let [first, second] = [(); 2].map(|()| caller.call(CallOptions::default()));
    let log = gateway.stop().stderr;
    assert_eq!(
        (first.status, second.status),
        (Some(429), Some(429)),
        "{first:?}\n{second:?}\n{log}"
    );
    assert!(first.took < Duration::from_secs(5), "{first:?}\n{log}");
    assert!(second.took < Duration::from_secs(1), "{second:?}\n{log}");
    for refused in [&first, &second] {
        let after = refused.number("retry-after");
        assert!(after.is_some_and(|seconds| (50..=61).contains(&seconds)), "{refused:?}");
    }
    assert_eq!(provider.simulator.ledger().seen(), 2, "{log}");
    assert!(log.contains("Rate limit hit (attempt 1/"), "{log}");
    assert!(!log.contains("a retry cannot help"), "{log}");
}
