//! Events and metrics, which never contain a prompt or a key.

#[cfg(feature = "metrics")]
mod scraped;
mod secrets;
mod split;

use std::time::Duration;

use tidegate_llm::Call;
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::models::Models;
use tidegate_llm::pipeline::{Pipeline, RateLimitHandler};
use tidegate_llm::plan::{PlanRequest, Planner, RawConstraint};
use tidegate_llm::settings::RateLimitSettings;
use tidegate_llm::telemetry::{Acquired, tracing_observer};
use tidegate_providers::{Chat, Provider};
use tracing::Level;

use crate::log::Log;

const MILLI: Duration = Duration::from_millis(1);

/// Returns the fields of all lines of an event, without the timestamp.
fn events(lines: &[String], name: &str) -> Vec<String> {
    let named = format!("event=\"{name}\" ");
    let of_event = lines.iter().filter_map(|line| line.split_once(&named));
    of_event.map(|(_, fields)| fields.split(" timestamp=").next().unwrap().to_owned()).collect()
}

/// Returns the timestamps of lines, in seconds.
fn timestamps(lines: &[String]) -> Vec<f64> {
    let times = lines.iter().filter_map(|line| line.split_once(" timestamp="));
    times.map(|(_, time)| time.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn delay_is_reported_in_whole_milliseconds_that_add_up() {
    let log = Log::default();
    let _listening = log.listen_from(Level::DEBUG);
    let provider = Provider::new("gemini");
    let mut acquired = Acquired::new(&provider, "gemini/flash/tier_2");
    acquired.estimated_tokens = 1_500;
    acquired.requests_per_minute = Some(1_000);
    acquired.tokens_per_minute = Some(4_000_000);
    tracing_observer().acquired(&acquired);
    // Each part is rounded down to whole milliseconds. A wait for a slot is not part of them.
    acquired.token_wait = MILLI * 200 + MILLI * 9 / 10;
    acquired.slot_wait = MILLI * 70;
    acquired.wait = acquired.token_wait + acquired.slot_wait + MILLI * 50 + MILLI * 9 / 10;
    tracing_observer().acquired(&acquired);
    let lines = log.lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    let slot = "limiter_key=\"gemini/flash/tier_2\" wait_ms=70";
    assert_eq!(events(&lines, "concurrency.delayed"), [slot]);
    let acquire = "limiter_key=\"gemini/flash/tier_2\" estimated_tokens=1500";
    assert_eq!(events(&lines, "rate_limit.acquire"), [acquire; 2]);
    assert_eq!(
        events(&lines, "rate_limit.delayed"),
        ["limiter_key=\"gemini/flash/tier_2\" wait_ms=250 request_wait_ms=50 token_wait_ms=200 \
          estimated_tokens=1500 constraint.rpm=1000 constraint.tpm=4000000"]
    );
    let times = timestamps(&lines);
    assert_eq!(times.len(), 4);
    // Between 2020 and 2100, in seconds.
    assert!(times.iter().all(|time| (1.57e9..4.1e9).contains(time)), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn every_permit_and_every_delay_is_an_event() {
    let log = Log::default();
    let _listening = log.listen_from(Level::DEBUG);
    let models = Models::builder().backend("openai", Mock::new("openai")).build();
    let limits = RateLimitSettings::new().requests_per_minute(240).burst(2);
    let model = models.load_model("openai", "a").rate_limit(limits).build().unwrap();
    let call = Call::new(Chat::user("hello").max_tokens(100));
    for _ in 0..3 {
        model.invoke(call.clone()).await.unwrap();
    }
    let lines = log.lines();
    let acquired = events(&lines, "rate_limit.acquire");
    assert_eq!(acquired.len(), 3, "{lines:?}");
    let delayed = events(&lines, "rate_limit.delayed");
    assert_eq!(delayed.len(), 1, "{lines:?}");
    let key = "limiter_key=\"openai/default\" wait_ms=250 request_wait_ms=250 token_wait_ms=0 ";
    assert!(delayed[0].starts_with(key), "{delayed:?}");
    assert!(delayed[0].ends_with(" constraint.rpm=240"), "{delayed:?}");
    let estimated = acquired[2].split_once("estimated_tokens=").unwrap().1;
    assert!(estimated.parse::<u64>().unwrap() > 100, "{acquired:?}");
}

/// A handler reports to the log unless it is given another observer.
#[tokio::test(start_paused = true)]
async fn pipeline_emits_an_event_for_each_command() {
    let log = Log::default();
    let _listening = log.listen_from(Level::DEBUG);
    let api = Mock::new("openai").always(Step::reply("done"));
    let mut pipeline = Pipeline::new(Planner::default(), RateLimitHandler::new(), api);
    let rate_limits = RawConstraint { requests_per_minute: Some(120), ..RawConstraint::default() };
    let request = PlanRequest::new().model("gpt-4o").rate_limits(rate_limits);
    for _ in 0..2 {
        let reply = pipeline.run(&request, Call::new(Chat::user("hello"))).await.unwrap();
        assert_eq!(reply.text, "done");
    }
    let lines = log.lines();
    let acquire = "limiter_key=\"openai/gpt-4o/unknown\" estimated_tokens=0";
    assert_eq!(events(&lines, "rate_limit.acquire"), [acquire; 2], "{lines:?}");
    let delayed = events(&lines, "rate_limit.delayed");
    assert!(delayed.len() == 1 && delayed[0].contains(" wait_ms=500 "), "{lines:?}");
}
