//! Configuration changes and shutdown while calls are queued and in flight.

use serde_json::{Value, json};
use tidegate_server::Drained;
use tidegate_sim::{Delay, Limits};
use tidegate_testkit::launch::wait_until;

use super::{Fixture, MILLI, account, assert_all_ok, responses};

fn change(fixture: &Fixture, settings: &Value) {
    let response = fixture.server.patch(&json!({"providers": {"openai": settings}}));
    assert_eq!(response.status, 200, "{response:?}");
}

/// R366, R367, R392: calls in flight complete, and waiting calls follow the new limit.
///
/// Setting: providers.*.max_concurrent_requests
#[test]
fn the_concurrency_limit_changes_without_a_restart() {
    let fixture = Fixture::new(account(40, Limits::new()), "max_concurrent_requests = 8", "");
    let ledger = fixture.simulator.ledger();
    let replies = std::thread::scope(|scope| {
        let crowd = fixture.crowd(scope, 30);
        wait_until("eight at a time", || {
            let crowded = ledger.count(|call| call.in_flight == 8) >= 8;
            (crowded && fixture.gauge("in_flight") == 8).then_some(())
        });
        change(&fixture, &json!({"max_concurrent_requests": 2}));
        wait_until("two at a time", || (fixture.gauge("in_flight") <= 2).then_some(()));
        let drained = fixture.simulator.elapsed();
        wait_until("some calls more", || {
            (ledger.count(|call| call.at > drained) >= 20).then_some(())
        });
        assert_eq!(ledger.count(|call| call.at > drained && call.in_flight > 2), 0);
        let widened = fixture.simulator.elapsed();
        change(&fixture, &json!({"max_concurrent_requests": 16}));
        wait_until("more than eight at a time", || {
            (ledger.count(|call| call.at > widened && call.in_flight > 8) > 0).then_some(())
        });
        crowd.stop()
    });
    assert_all_ok(&replies);
    assert_eq!(ledger.throttled(), 0);
    fixture.wait_for_gauge("in_flight", 0);
}

/// R392.
#[test]
fn no_call_fails_during_configuration_changes() {
    let fixture = Fixture::new(account(5, Limits::new()), "max_concurrent_requests = 4", "");
    let ledger = fixture.simulator.ledger();
    let replies = std::thread::scope(|scope| {
        let crowd = fixture.crowd(scope, 12);
        for round in 0..40_u64 {
            let limits = if round.is_multiple_of(2) { json!(6_000) } else { Value::Null };
            let settings = json!({
                "max_concurrent_requests": 1 + round % 8,
                "max_retries": round % 5,
                "requests_per_minute": limits,
                "max_wait": format!("{}s", 30 + round % 20),
            });
            let before = ledger.seen();
            change(&fixture, &settings);
            wait_until("calls under it", || (ledger.seen() >= before + 4).then_some(()));
        }
        crowd.stop()
    });
    assert_all_ok(&replies);
    fixture.wait_for_gauge("in_flight", 0);
}

/// A provider that never responds is given up as configured, also after a change at run time.
#[test]
fn a_configured_timeout_applies_to_calls() {
    let settings = "max_retries = 0\nfirst_byte_timeout = \"50ms\"";
    let fixture = Fixture::new(account(86_400_000, Limits::new()), settings, "");
    let given_up_after = |text: &str| {
        let response = fixture.call();
        assert_eq!(response.status, 504, "{response:?}");
        let end = format!("the response did not begin within {text}");
        assert!(response.body.contains(&end), "{response:?}");
    };
    given_up_after("50ms");
    change(&fixture, &json!({"first_byte_timeout": "80ms"}));
    given_up_after("80ms");
    fixture.wait_for_gauge("in_flight", 0);
}

/// Waiting calls are rejected at once with a retry time; a stream is not cut.
#[test]
fn shutdown_rejects_waiting_calls_and_finishes_streams() {
    let slow = account(1, Limits::new()).per_token(Delay::fixed(MILLI * 100));
    let mut fixture = Fixture::new(slow, "max_concurrent_requests = 1", "");
    let running = fixture.server.running.take().unwrap();
    let fixture = &fixture;
    std::thread::scope(|scope| {
        let stream = scope.spawn(move || fixture.stream());
        fixture.wait_for_gauge("in_flight", 1);
        let callers = fixture.callers(scope, 5, 1);
        fixture.wait_for_gauge("waiting", 5);
        let ended = fixture.server.runtime.spawn(running.shutdown());
        for response in responses(callers) {
            assert_eq!(response.status, 503, "{response:?}");
            let after = response.header("retry-after-ms").unwrap();
            assert!(after.parse::<u64>().unwrap() > 0, "{response:?}");
        }
        assert!(!stream.is_finished(), "waiting calls were rejected before the stream ended");
        assert!(stream.join().unwrap().ends_with("data: [DONE]\n\n"));
        assert_eq!(fixture.server.runtime.block_on(ended).unwrap(), Drained::Complete);
    });
}
