//! Many concurrent callers without a token limit: with no limit at all, and with a request limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_sim::{Delay, Limits, Reporting};

use super::fixtures::{Gateway, Provider, Sdk};
use super::traffic::{CallOptions, Caller, at_once};

/// Makes forty concurrent calls, without any limit.
fn assert_answered_in_time(call_time: Duration) {
    let delay = Delay::fixed(call_time);
    let account = Sdk::OPENAI.account().any_model(Limits::new()).first_token(delay);
    let provider = Provider::start(account);
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    let caller = Caller::new(&gateway);
    let replies = at_once(40, || caller.call(CallOptions::default()));
    let answered = replies.iter().filter(|reply| reply.status == Some(200)).count();
    let slowest = replies.iter().map(|reply| reply.took).max().unwrap();
    let log = gateway.stop().stderr;
    assert_eq!(answered, 40, "{replies:?}\n{log}");
    let bound = call_time + Duration::from_secs(4);
    assert!(slowest < bound, "the slowest of 40 calls of {call_time:?} took {slowest:?}\n{log}");
}

#[test]
fn forty_unlimited_calls_of_six_seconds_are_not_delayed() {
    assert_answered_in_time(Duration::from_secs(6));
}

#[test]
fn forty_unlimited_calls_of_two_seconds_are_not_delayed() {
    assert_answered_in_time(Duration::from_secs(2));
}

/// The provider reports the limit per minute with what remains of the second. Reading that as what
/// remains of the minute would slow down all calls.
#[test]
fn per_second_reports_do_not_slow_down_a_limit_per_minute() {
    const CALLS: usize = 100;
    const A_SECOND: f64 = 10.0;
    let call_time = Duration::from_millis(100);
    let account = Sdk::OPENAI
        .account()
        .any_model(Limits::new().requests_per_minute(600))
        .reporting(Reporting::PerSecond)
        .first_token(Delay::fixed(call_time));
    let provider = Provider::start(account);
    // Concurrency equals the number of callers, so that auto-tuning does not affect the test.
    let settings = "requests_per_minute = 600\nmax_concurrent_requests = 20";
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, settings);
    let (caller, next) = (Caller::new(&gateway), AtomicUsize::new(0));
    let failed = at_once(20, || {
        let mut failed = Vec::new();
        while next.fetch_add(1, Ordering::Relaxed) < CALLS {
            let reply = caller.call(CallOptions::default());
            failed.extend((reply.status != Some(200)).then_some(reply));
        }
        failed
    });
    let failed = failed.concat();
    let log = gateway.stop().stderr;
    assert!(
        failed.is_empty(),
        "{} of {CALLS} failed, such as {:?}\n{log}",
        failed.len(),
        failed[0]
    );
    // Measured at the provider, to exclude the startup cost of the program.
    let entries = provider.simulator.ledger().entries();
    let took = entries.iter().filter_map(|entry| entry.ended).max().unwrap() - entries[0].at;
    // One second's worth is sent at once; then 95 % of the rate must be used.
    let paced = (CALLS as f64 - A_SECOND) / A_SECOND * 1.06;
    let bound = Duration::from_secs_f64(paced) + call_time;
    let throttled = provider.simulator.ledger().throttled();
    assert!(took <= bound, "{took:?} of {bound:?}, {throttled} throttled\n{log}");
}
