//! Workers that fail together retry at different times and recover.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_llm::retry::{Random, RetryLayer};
use tower::Layer as _;

use super::{SECOND, Script, ask, hello, rate_limited, rate_limited_for};

/// Returns the times of the retries of workers that failed together.
async fn retry_times(workers: usize, script: &Script, random: Random) -> Vec<f64> {
    let layer = RetryLayer::new("openai").random(random);
    let calls = (0..workers).map(|_| {
        let service = layer.layer(script.clone());
        async move { ask(&service, hello()).await }
    });
    assert!(futures_util::future::join_all(calls).await.iter().all(Result::is_ok));
    script.times().split_off(workers)
}

#[tokio::test(start_paused = true)]
async fn workers_limited_together_retry_at_different_times() {
    let script = Script::failing(4, rate_limited);
    let times = retry_times(4, &script, Random::seeded(1)).await;
    assert!(times.iter().all(|at| (0.5..=1.0).contains(at)), "{times:?}");
    let distinct: BTreeSet<_> = times.iter().map(|at| at.to_bits()).collect();
    assert_eq!(distinct.len(), 4, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn workers_with_the_same_server_delay_retry_after_it_at_different_times() {
    let script = Script::failing(50, || rate_limited_for(60));
    let times = retry_times(50, &script, Random::seeded(2)).await;
    assert!(times.iter().all(|at| (60.0..=66.0).contains(at)), "{times:?}");
    for half in [60.0..63.0, 63.0..66.0] {
        assert!(times.iter().filter(|&at| half.contains(at)).count() >= 10, "{times:?}");
    }
}

/// Even with maximum jitter the window is 91 seconds.
#[tokio::test(start_paused = true)]
async fn all_workers_survive_a_one_minute_lockout_with_any_jitter() {
    let sources = [Random::from_fn(|| 0), Random::from_fn(|| u64::MAX), Random::seeded(3)];
    for source in sources {
        let locked =
            |_, at: Duration| if at < SECOND * 60 { Err(rate_limited()) } else { Ok("in") };
        let script = Script::new(locked);
        retry_times(4, &script, source).await;
        assert!(script.begin.elapsed() < SECOND * 184);
    }
}
