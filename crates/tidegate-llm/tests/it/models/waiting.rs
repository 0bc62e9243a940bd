//! Waits for permits, and how they are logged.

use std::time::Duration;

use futures_util::future::join_all;
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::models::{Model, Models};
use tidegate_llm::settings::RateLimitSettings;
use tokio::time::Instant;
use tower::{Service as _, service_fn};

use crate::log::Log;

use super::{SECOND, hello, limits, wait};

/// A model limited to one call per second.
fn limited(provider: &str) -> Model {
    let models = super::registry(&[provider]).rate_limit(limits(60, 1)).build();
    models.load_model(provider, "a").rate_limit(true).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_the_permit_is_granted() {
    let start = Instant::now();
    let (times, seen) = tokio::sync::mpsc::unbounded_channel();
    let inner = service_fn(move |call| {
        times.send(start.elapsed()).unwrap();
        Mock::new("openai").call(call)
    });
    let models = Models::builder().backend("openai", inner).rate_limit(limits(60, 1)).build();
    let model = models.load_model("openai", "a").rate_limit(true).build().unwrap();
    let calls = (0..4).map(|_| model.invoke(hello()));
    let answers = join_all(calls).await;
    assert!(answers.iter().all(Result::is_ok));
    let mut seen = seen;
    for second in 0..4 {
        assert_eq!(seen.try_recv().unwrap(), SECOND * second);
    }
    assert!(seen.try_recv().is_err(), "each is sent once");
}

#[tokio::test(start_paused = true)]
async fn only_calls_that_waited_are_logged() {
    let log = Log::default();
    let _listening = log.listen();
    let model = limited("anthropic");
    log.lines();
    assert!(wait(&model).await.is_zero());
    assert_eq!(log.lines(), [""; 0]);
    assert_eq!(wait(&model).await, SECOND);
    assert_eq!(
        log.lines(),
        ["WARN Rate limited for provider 'anthropic'. Waited 1.00s for token."]
    );
    tokio::time::advance(Duration::from_millis(660)).await;
    assert_eq!(wait(&model).await, Duration::from_millis(340));
    assert_eq!(
        log.lines(),
        ["WARN Rate limited for provider 'anthropic'. Waited 0.34s for token."]
    );
    tokio::time::advance(SECOND).await;
    assert!(wait(&model).await.is_zero());
    assert_eq!(log.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_caller_makes_way_for_the_next() {
    let model = limited("openai");
    assert!(wait(&model).await.is_zero());
    let hasty = tokio::time::timeout(SECOND / 2, model.invoke(hello()));
    let start = Instant::now();
    let (gone, stayed) = tokio::join!(hasty, model.invoke(hello()));
    assert!(gone.is_err());
    stayed.unwrap();
    assert_eq!(start.elapsed(), SECOND, "not two seconds");
}

/// A provider that takes this long for each call.
fn slow(provider: &str, span: Duration) -> Models {
    let mock = Mock::new(provider).always(Step::reply("yes").after(span));
    Models::builder().backend(provider, mock).build()
}

/// Without a rate limit no call waits for a token, however few slots there are.
#[tokio::test(start_paused = true)]
async fn waits_for_a_slot_are_not_logged_as_waits_for_a_token() {
    let model = slow("anthropic", SECOND).load_model("anthropic", "a").rate_limit(true);
    let model = model.build().unwrap();
    let log = Log::default();
    let _listening = log.listen();
    let answers = join_all((0..20).map(|_| model.invoke(hello()))).await;
    assert!(answers.iter().all(Result::is_ok));
    let line = |seconds: u64| {
        format!(
            "INFO Concurrency limited for provider 'anthropic'. Waited {seconds}.00s for a slot."
        )
    };
    let expected: Vec<_> = (1..=4).flat_map(|seconds| vec![line(seconds); 4]).collect();
    assert_eq!(log.lines(), expected, "four slots, so the first four do not wait");
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_slot_and_a_token_is_logged_in_two_lines() {
    let limits = RateLimitSettings::new().requests_per_minute(60).burst(1).concurrency(1);
    let model = slow("openai", SECOND * 2 / 5).load_model("openai", "a").rate_limit(limits);
    let model = model.build().unwrap();
    let log = Log::default();
    let _listening = log.listen();
    let answers = join_all((0..2).map(|_| model.invoke(hello()))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(
        log.lines(),
        [
            "WARN Rate limited for provider 'openai'. Waited 0.60s for token.",
            "INFO Concurrency limited for provider 'openai'. Waited 0.40s for a slot.",
        ]
    );
}
