//! Configuration changes and shutdown while calls are queued and in flight.

use serde_json::{Value, json};
use tidegate_server::Drained;
use tidegate_sim::{Delay, Limits};
use tidegate_testkit::launch::wait_until;

use super::{MILLI, Stage, account, answers, assert_all_answered};

fn change(stage: &Stage, settings: &Value) {
    let reply = stage.gate.patch(&json!({"providers": {"openai": settings}}));
    assert_eq!(reply.status, 200, "{reply:?}");
}

/// R366, R367, R392: calls in flight complete, and waiting calls follow the new limit.
///
/// Setting: providers.*.max_concurrent_requests
#[test]
fn eight_calls_at_a_time_become_two_without_a_restart() {
    let stage = Stage::new(account(40, Limits::new()), "max_concurrent_requests = 8", "");
    let ledger = stage.simulator.ledger();
    let replies = std::thread::scope(|scope| {
        let crowd = stage.crowd(scope, 30);
        wait_until("eight at a time", || {
            let crowded = ledger.count(|call| call.in_flight == 8) >= 8;
            (crowded && stage.gauge("in_flight") == 8).then_some(())
        });
        change(&stage, &json!({"max_concurrent_requests": 2}));
        wait_until("two at a time", || (stage.gauge("in_flight") <= 2).then_some(()));
        let drained = stage.simulator.elapsed();
        wait_until("some calls more", || {
            (ledger.count(|call| call.at > drained) >= 20).then_some(())
        });
        assert_eq!(ledger.count(|call| call.at > drained && call.in_flight > 2), 0);
        let widened = stage.simulator.elapsed();
        change(&stage, &json!({"max_concurrent_requests": 16}));
        wait_until("more than eight at a time", || {
            (ledger.count(|call| call.at > widened && call.in_flight > 8) > 0).then_some(())
        });
        crowd.leave()
    });
    assert_all_answered(&replies);
    assert_eq!(ledger.throttled(), 0);
    stage.wait_for_gauge("in_flight", 0);
}

/// R392.
#[test]
fn no_call_fails_while_everything_is_changed() {
    let stage = Stage::new(account(5, Limits::new()), "max_concurrent_requests = 4", "");
    let ledger = stage.simulator.ledger();
    let replies = std::thread::scope(|scope| {
        let crowd = stage.crowd(scope, 12);
        for round in 0..40_u64 {
            let limits = if round.is_multiple_of(2) { json!(6_000) } else { Value::Null };
            let settings = json!({
                "max_concurrent_requests": 1 + round % 8,
                "max_retries": round % 5,
                "requests_per_minute": limits,
                "max_wait": format!("{}s", 30 + round % 20),
            });
            let before = ledger.seen();
            change(&stage, &settings);
            wait_until("calls under it", || (ledger.seen() >= before + 4).then_some(()));
        }
        crowd.leave()
    });
    assert_all_answered(&replies);
    stage.wait_for_gauge("in_flight", 0);
}

/// A provider that never responds is given up as configured, also after a change at run time.
#[test]
fn a_time_out_of_the_configuration_reaches_the_calls() {
    let settings = "max_retries = 0\nfirst_byte_timeout = \"50ms\"";
    let stage = Stage::new(account(86_400_000, Limits::new()), settings, "");
    let given_up_after = |text: &str| {
        let reply = stage.call();
        assert_eq!(reply.status, 504, "{reply:?}");
        let end = format!("the answer did not begin within {text}");
        assert!(reply.body.contains(&end), "{reply:?}");
    };
    given_up_after("50ms");
    change(&stage, &json!({"first_byte_timeout": "80ms"}));
    given_up_after("80ms");
    stage.wait_for_gauge("in_flight", 0);
}

/// Waiting calls are rejected at once with a retry time; a stream is not cut.
#[test]
fn the_end_sends_those_away_who_wait_and_lets_a_stream_run() {
    let slow = account(1, Limits::new()).per_token(Delay::fixed(MILLI * 100));
    let mut stage = Stage::new(slow, "max_concurrent_requests = 1", "");
    let running = stage.gate.running.take().unwrap();
    let stage = &stage;
    std::thread::scope(|scope| {
        let stream = scope.spawn(move || stage.stream());
        stage.wait_for_gauge("in_flight", 1);
        let callers = stage.callers(scope, 5, 1);
        stage.wait_for_gauge("waiting", 5);
        let ended = stage.gate.runtime.spawn(running.shutdown());
        for reply in answers(callers) {
            assert_eq!(reply.status, 503, "{reply:?}");
            let after = reply.header("retry-after-ms").unwrap();
            assert!(after.parse::<u64>().unwrap() > 0, "{reply:?}");
        }
        assert!(!stream.is_finished(), "those who waited did not wait for it");
        assert!(stream.join().unwrap().ends_with("data: [DONE]\n\n"));
        assert_eq!(stage.gate.runtime.block_on(ended).unwrap(), Drained::Complete);
    });
}
