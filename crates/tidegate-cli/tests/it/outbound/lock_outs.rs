//! Providers that refuse all calls of an account for a time.

use std::time::Duration;

use tidegate_sim::{Fault, Faults, Hint, Limits};

use super::stage::{Gateway, Provider, Sdk};
use super::traffic::{CallOptions, Caller, Crowd};

const MINUTE: Duration = Duration::from_secs(60);

/// Four workers during a lock-out of a minute, with the defaults of everything.
fn workers_succeed(hint: Hint) {
    let provider = Provider::start(Sdk::OPENAI.account().any_model(Limits::new()));
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    provider.simulator.lock_out(Sdk::OPENAI.name, MINUTE, hint).unwrap();
    let crowd = Crowd::run(&gateway, 4, 100);
    let (throttled, log) = (provider.simulator.ledger().throttled(), gateway.stop().stderr);
    assert_eq!(crowd.answered(), 4, "{throttled} throttled; {crowd}\n{log}");
    assert!(throttled > 0, "they met the lock-out");
}

#[test]
fn four_workers_outlast_a_lock_out_of_a_minute_that_is_told() {
    workers_succeed(Hint::Told);
}

#[test]
fn four_workers_outlast_a_lock_out_of_a_minute_that_is_not_told() {
    workers_succeed(Hint::Withheld);
}

/// The second attempt tells the gateway of a wait that is longer than the caller accepts. The log
/// says that, and not that the call could never succeed.
#[test]
fn a_wait_that_is_too_long_after_a_retry_is_not_logged_as_hopeless() {
    let soon = Fault::RateLimited { retry_after: Some(Duration::from_millis(300)) };
    let later = Fault::LockOut { length: MINUTE, hint: Hint::Told };
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
    assert!(!log.contains("trying again does not help"), "{log}");
}
