//! Waits for permits, and how they are logged.

use std::time::Duration;

use tidegate_llm::mock::Mock;
use tidegate_llm::models::{Model, Models};
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
    let answers = futures_util::future::join_all(calls).await;
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
