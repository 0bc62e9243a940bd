//! Slices reject a client that paces itself exactly at the limit now and then, but not one that
//! stays slightly below, as with real providers.

use std::time::Duration;

use tidegate_sim::{Charging, Delay, Dialect, FailedCalls, Limits, Simulator, Usage};
use tokio::time::{Instant, sleep_until};

use crate::client::{Call, account, with};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// Paces calls for 150 seconds, each up to 20 ms late. Returns the rejected calls per thousand and
/// the use of the quota after the first minute.
async fn pace(per_mille: u32, phase: Duration) -> (usize, Usage) {
    let limits = Limits::new().requests_per_minute(600).slice(SECOND).phase(phase);
    let rule = Charging::of(Dialect::OpenAi).failed_calls(FailedCalls::Free);
    let simulator = with(
        account(Dialect::OpenAi, limits).charging(rule).first_token(Delay::fixed(MILLI * 700)),
    );
    let began = Instant::now();
    let interval = SECOND * 100 / per_mille;
    let mut calls = Vec::new();
    let mut lateness = 7_u32;
    for number in 0_u32.. {
        let due = interval * number;
        if due >= SECOND * 150 {
            break;
        }
        lateness = lateness * 13 % 101;
        let at = began + due + MILLI * (lateness % 21);
        let simulator: Simulator = simulator.clone();
        calls.push(tokio::spawn(async move {
            sleep_until(at).await;
            Call::new(Dialect::OpenAi).output(1).send(&simulator).await
        }));
    }
    let sent = calls.len();
    for call in calls {
        call.await.unwrap();
    }
    let refused = simulator.ledger().count(|entry| entry.status == Some(429));
    let usage = simulator.usage("main", "m", SECOND * 60..SECOND * 150).unwrap();
    (refused * 1_000 / sent, usage)
}

#[tokio::test(start_paused = true)]
async fn pacing_slightly_below_the_limit_is_safe_in_every_phase() {
    for phase in [0, 190, 470, 730, 990] {
        let (refused, usage) = pace(985, MILLI * phase).await;
        assert!(refused <= 5, "{refused} of a thousand were rejected at phase {phase} ms");
        assert!(usage.ratio() >= 0.97, "{usage:?} at phase {phase} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn pacing_at_the_limit_hits_slice_boundaries() {
    let mut worst = 0;
    for phase in [0, 90, 95, 98] {
        worst = worst.max(pace(1_000, MILLI * phase).await.0);
    }
    assert!((10..60).contains(&worst), "{worst} of a thousand were rejected at the worst phase");
}
