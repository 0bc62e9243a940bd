//! Metrics as scraped by Prometheus.

use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tidegate_llm::Call;
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::models::{ModelBuilder, Models};
use tidegate_llm::settings::{RateLimitSettings, RetrySettings};
use tidegate_llm::telemetry::metrics_observer;
use tidegate_providers::{Chat, Class};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

/// Returns the value of a series for one provider.
fn value(scrape: &PrometheusHandle, series: &str, provider: &str) -> Option<f64> {
    let rendered = scrape.render();
    let provider = format!("provider=\"{provider}\"");
    let mut lines = rendered.lines().filter_map(|line| {
        let (name, rest) = line.split_once('{')?;
        let (labels, value) = rest.split_once("} ")?;
        (name == series && labels.contains(&provider)).then(|| value.parse().unwrap())
    });
    lines.next()
}

/// A model at a mock provider, limited to one call per second without bursts.
fn model(provider: &str, mock: Mock) -> ModelBuilder {
    let models = Models::builder().backend(provider, mock).observer(metrics_observer()).build();
    let limits = RateLimitSettings::new().burst(1);
    models.load_model(provider, "a").rate_limit(limits)
}

fn hello() -> Call {
    Call::new(Chat::user("hello").max_tokens(100))
}

#[tokio::test(start_paused = true)]
async fn delayed_call_shows_in_all_four_metrics() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (scrape, _local) = (recorder.handle(), metrics::set_default_local_recorder(&recorder));
    let model = model("openai", Mock::new("openai")).build().unwrap();
    model.invoke(hello()).await.unwrap();
    let of = |series: &str| value(&scrape, series, "openai");
    assert_eq!(of("rate_limit_acquisitions"), Some(1.0));
    assert_eq!(of("rate_limit_delays"), None);
    model.invoke(hello()).await.unwrap();
    assert_eq!(of("rate_limit_acquisitions"), Some(2.0));
    assert_eq!(of("rate_limit_delays"), Some(1.0));
    assert_eq!(of("rate_limit_wait_time_count"), Some(2.0));
    assert_eq!(of("rate_limit_wait_time_sum"), Some(1.0), "seconds");
    assert_eq!(of("rate_limit_tokens_reserved_count"), Some(2.0));
    assert!(of("rate_limit_tokens_reserved_sum").unwrap() > 200.0);
}

#[tokio::test(start_paused = true)]
async fn gauges_of_waiting_and_in_flight_calls_go_up_and_down() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (scrape, _local) = (recorder.handle(), metrics::set_default_local_recorder(&recorder));
    let mock = Mock::new("ollama").always(Step::reply("yes").after(SECOND * 10));
    let model = model("ollama", mock).build().unwrap();
    let of = |series: &str| value(&scrape, series, "ollama");
    let mut calls: Vec<_> = (0..4)
        .map(|_| {
            let model = model.clone();
            tokio::spawn(async move { model.invoke(hello()).await })
        })
        .collect();
    sleep(SECOND).await;
    assert_eq!((of("rate_limit_in_flight"), of("rate_limit_waiting")), (Some(1.0), Some(3.0)));
    // A waiting call is cancelled.
    calls.pop().unwrap().abort();
    sleep(SECOND).await;
    assert_eq!((of("rate_limit_in_flight"), of("rate_limit_waiting")), (Some(1.0), Some(2.0)));
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!((of("rate_limit_in_flight"), of("rate_limit_waiting")), (Some(0.0), Some(0.0)));
}

#[tokio::test(start_paused = true)]
async fn hits_retries_and_failures_are_counted_by_provider() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (scrape, _local) = (recorder.handle(), metrics::set_default_local_recorder(&recorder));
    let hit = || Step::fail(Class::RateLimited { after: Some(SECOND * 5), dimension: None });
    let retry = RetrySettings::new().max_retries(3);
    let mock = Mock::new("groq").then(hit()).then(hit());
    let groq = model("groq", mock).retry(retry).build().unwrap();
    groq.invoke(hello()).await.unwrap();
    let of = |series: &str| value(&scrape, series, "groq");
    assert_eq!(of("rate_limit_hits"), Some(2.0));
    assert_eq!(of("retry_recovered_after_count"), Some(1.0));
    assert_eq!(of("retry_recovered_after_sum"), Some(2.0), "retries");
    assert_eq!(of("retry_delay_count"), Some(2.0));
    assert!((10.0..13.0).contains(&of("retry_delay_sum").unwrap()), "seconds");
    assert_eq!(of("retry_failures"), None);
    let dead = Mock::new("mistral").always(Step::fail(Class::CredentialRejected));
    let mistral = model("mistral", dead).retry(retry).build().unwrap();
    mistral.invoke(hello()).await.unwrap_err();
    assert_eq!(value(&scrape, "retry_failures", "mistral"), Some(1.0));
    assert!(scrape.render().contains("class=\"dead_key\""));
}
