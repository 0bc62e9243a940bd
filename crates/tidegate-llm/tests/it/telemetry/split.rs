//! The parts of a wait: tokens first, requests beyond that, and a slot on its own (R97, R131).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::models::Models;
use tidegate_llm::plan::{Constraint, ConstraintSource, RawConstraint};
use tidegate_llm::rate_limit::Account;
use tidegate_llm::telemetry::{Acquired, Observer, tracing_observer};
use tidegate_llm::{Call, CallOptions, OutgoingCall};
use tidegate_providers::{Chat, Credential, Endpoint, Provider};
use tracing::Level;

use crate::log::Log;

use super::{MILLI, events};

/// A request of a program with its own type, with this many tokens.
struct Request {
    options: CallOptions,
    tokens: u64,
}

impl OutgoingCall for Request {
    fn options(&self) -> &CallOptions {
        &self.options
    }

    fn options_mut(&mut self) -> &mut CallOptions {
        &mut self.options
    }

    fn input_tokens(&self) -> u64 {
        self.tokens
    }

    fn has_estimated_input(&self) -> bool {
        true
    }

    fn max_output(&self) -> Option<u64> {
        Some(0)
    }
}

fn request(tokens: u64) -> Request {
    Request { options: CallOptions::new(Endpoint::default()), tokens }
}

type Parts = Vec<(&'static str, Duration)>;

/// Records the waits of permits.
#[derive(Debug)]
struct Waits {
    seen: Arc<Mutex<Vec<Parts>>>,
    next: Arc<dyn Observer>,
}

impl Observer for Waits {
    fn acquired(&self, acquired: &Acquired<'_>) {
        self.seen.lock().unwrap().push(acquired.waited_for.to_vec());
        self.next.acquired(acquired);
    }
}

/// An account whose second call waits 200 ms for tokens and 250 ms for its request: 1,000 tokens and
/// four requests a second.
fn account(observer: Arc<dyn Observer>) -> Account {
    let raw = RawConstraint {
        requests_per_minute: Some(240),
        burst_capacity: Some(1),
        tokens_per_minute: Some(60_000),
        ..RawConstraint::default()
    };
    let limits = Constraint::try_new(&raw).unwrap();
    let builder = Account::builder("openai", &Credential::none()).observer(observer);
    builder.limits(limits, ConstraintSource::Override).without_margin().build().unwrap()
}

/// Tokens that the bucket of the account holds: a minute's worth less a fiftieth.
const HELD: u64 = 58_800;

/// Makes the call that empties the bucket, and the one that waits.
async fn two_calls(account: &Account) -> Parts {
    let first = account.reserve("gpt-4o", &request(HELD - 1_300)).await.unwrap();
    assert!(first.waited().is_zero());
    let second = account.reserve("gpt-4o", &request(1_500)).await.unwrap();
    assert_eq!(second.waited(), MILLI * 250);
    second.waited_for()
}

#[tokio::test(start_paused = true)]
async fn wait_of_250_ms_is_200_for_tokens_and_50_for_requests() {
    let log = Log::default();
    let _listening = log.listen_from(Level::DEBUG);
    let seen = Arc::default();
    let account = account(Arc::new(Waits { seen: Arc::clone(&seen), next: tracing_observer() }));
    let parts = [("tokens", MILLI * 200), ("requests", MILLI * 50)];
    assert_eq!(two_calls(&account).await, parts);
    assert_eq!(*seen.lock().unwrap(), [vec![], parts.to_vec()]);
    let lines = log.lines();
    assert_eq!(
        events(&lines, "rate_limit.delayed"),
        ["limiter_key=\"openai/default\" wait_ms=250 request_wait_ms=50 token_wait_ms=200 \
          estimated_tokens=1500 constraint.rpm=240 constraint.tpm=60000"]
    );
    let line = "WARN Rate limited for provider 'openai'. Waited 0.25s for token.";
    assert_eq!(lines.iter().filter(|text| *text == line).count(), 1, "{lines:#?}");
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn metrics_have_the_parts_of_a_wait() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let (scrape, _local) = (recorder.handle(), metrics::set_default_local_recorder(&recorder));
    two_calls(&account(tidegate_llm::telemetry::metrics_observer())).await;
    let rendered = scrape.render();
    let sum = |series: &str, label: &str| {
        let mut lines =
            rendered.lines().filter(|line| line.starts_with(&format!("{series}_sum{{")));
        let line = lines.find(|line| line.contains(label)).unwrap_or_else(|| panic!("{rendered}"));
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    let part = |limit: &str| sum("rate_limit_wait_part", &format!("limited_by=\"{limit}\""));
    assert!((sum("rate_limit_wait_time", "openai") - 0.25).abs() < 1e-9, "{rendered}");
    assert!((part("tokens") - 0.2).abs() < 1e-9, "{rendered}");
    assert!((part("requests") - 0.05).abs() < 1e-9, "{rendered}");
}

/// A wait for a slot has an event of its own and does not count as a delay by the rate.
#[tokio::test(start_paused = true)]
async fn wait_for_a_slot_is_another_event() {
    let log = Log::default();
    let _listening = log.listen_from(Level::DEBUG);
    let mock = Mock::new("ollama").always(Step::reply("yes").after(MILLI * 300));
    let models = Models::builder().backend("ollama", mock).build();
    let model = models.load_model("ollama", "a").rate_limit(true).build().unwrap();
    let call = || model.invoke(Call::new(Chat::user("hello")));
    let (one, other) = tokio::join!(call(), call());
    assert!(one.is_ok() && other.is_ok());
    let lines = log.lines();
    assert_eq!(events(&lines, "rate_limit.delayed"), [""; 0], "{lines:#?}");
    let delayed = events(&lines, "concurrency.delayed");
    assert_eq!(delayed, ["limiter_key=\"ollama/default/a\" wait_ms=300"], "{lines:#?}");
}

/// Calls that our own limits refuse are counted apart from failures of the provider.
#[derive(Debug, Default)]
struct Refusals(Mutex<Vec<Option<&'static str>>>);

impl Observer for Refusals {
    fn refused(&self, provider: &Provider, limited_by: Option<&'static str>) {
        assert_eq!(provider.as_str(), "openai");
        self.0.lock().unwrap().push(limited_by);
    }

    fn failed(
        &self,
        _provider: &Provider,
        _class: tidegate_providers::Class,
        _attempt: u32,
        _next_after: Option<Duration>,
    ) {
        panic!("the provider has not failed");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_calls_are_not_failures() {
    let observer = Arc::new(Refusals::default());
    let models = Models::builder().backend("openai", Mock::new("openai"));
    let models = models.observer(observer.clone()).rate_limit(crate::models::limits(1, 1)).build();
    let model = models.load_model("openai", "a").rate_limit(true).retry(true).build().unwrap();
    let call = || Call::new(Chat::user("hello"));
    model.invoke(call()).await.unwrap();
    model.invoke(call().max_wait(MILLI)).await.unwrap_err();
    model.invoke(call().deadline(MILLI)).await.unwrap_err();
    assert_eq!(*observer.0.lock().unwrap(), [Some("requests"); 2]);
}
