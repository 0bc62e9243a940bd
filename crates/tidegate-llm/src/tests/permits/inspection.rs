//! Views of an account's limits. Viewing changes nothing.

use tidegate_llm::CallError;
use tidegate_llm::rate_limit::{Account, LimitView, QueueView};
use tidegate_providers::{Class, Dimension, Failure, LimitReading, ReportedLimits, Usage};

use super::{MINUTE, SECOND, account, add_limit, ask, reported, reserve, tokens};

async fn queue_of(account: &Account) -> QueueView {
    account.inspect(SECOND).await.remove(0)
}

/// The hold of the first model of a queue.
fn hold_of(queue: &QueueView) -> Option<(std::time::Duration, &'static str)> {
    queue.model_hold(queue.models().next().unwrap())
}

/// Returns the account's limit on a dimension.
async fn limit(account: &Account, dimension: Dimension) -> LimitView {
    let queue = queue_of(account).await;
    let mut same = queue.all_limits().filter(|(_, one)| one.dimension == Some(dimension));
    same.next().unwrap_or_else(|| panic!("{queue:?}")).1.clone()
}

fn refused(after: std::time::Duration) -> CallError {
    let class = Class::RateLimited { after: Some(after), dimension: Some(Dimension::Requests) };
    let status = http::StatusCode::TOO_MANY_REQUESTS;
    Box::new(Failure::new("openai".into(), class, status)).into()
}

#[tokio::test(start_paused = true)]
async fn view_of_a_learned_limit_has_origin_age_and_remainder() {
    let account = account("openai").build().unwrap();
    let mut call = reserve(&account, &ask(100, 900)).await;
    let queue = queue_of(&account).await;
    let model = queue.models().next().unwrap();
    assert!(queue.model_limits(model).is_empty(), "nothing is known");
    let mut report = reported(Dimension::Tokens, 90_000, 89_000);
    add_limit(&mut report, Dimension::Requests, 600, 599);
    call.response_started(&report);
    tokio::time::advance(SECOND * 3).await;
    let tokens = limit(&account, Dimension::Tokens).await;
    assert_eq!(tokens.source, "learned");
    assert_eq!((tokens.per_minute(), tokens.allowed), (Some(90_000), Some((90_000, MINUTE))));
    assert_eq!(tokens.learned, Some(("response_headers", SECOND * 3)));
    assert_eq!(tokens.reported, Some(89_000));
    assert_eq!(tokens.reported_in, Some(("response_headers", SECOND * 3)));
    assert!(tokens.reserved >= 1_000, "{tokens:?}");
    let before = tokens.bucket.unwrap();
    for _ in 0..100 {
        assert_eq!(limit(&account, Dimension::Tokens).await.bucket, Some(before));
    }
    call.complete(Some(Usage { input: 100, output: 10, ..Usage::default() }));
    assert_eq!(limit(&account, Dimension::Tokens).await.reserved, 0);
    let requests = limit(&account, Dimension::Requests).await;
    assert_eq!((requests.per_minute(), requests.used_in_last_minute), (Some(600), 1));
    assert_eq!(requests.used_ratio(), Some(1.0 / 600.0));
}

#[tokio::test(start_paused = true)]
async fn limit_that_calls_wait_for_is_named_and_fully_used() {
    let account = tokens("mistral").await;
    let half = limit(&account, Dimension::Tokens).await;
    assert!(half.used_ratio().unwrap() > 0.9, "{half:?}");
    let other = account.clone();
    let waiting = tokio::spawn(async move { reserve(&other, &ask(0, 300)).await.complete(None) });
    tokio::time::advance(SECOND).await;
    tokio::task::yield_now().await;
    let queue = queue_of(&account).await;
    assert_eq!((queue.gauges.waiting, queue.limited_by), (1, Some("tokens")));
    assert_eq!(queue.limits[0].source, "configured");
    assert!(queue.limits[0].used_ratio() >= Some(1.0), "{:?}", queue.limits);
    waiting.await.unwrap();
    tokio::time::advance(MINUTE).await;
    let after = limit(&account, Dimension::Tokens).await;
    assert!(after.used_ratio() < Some(0.1), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn view_shows_the_cause_and_remaining_time_of_a_hold() {
    let account = account("openai").build().unwrap();
    let mut first = reserve(&account, &ask(1, 1)).await;
    first.response_started(&reported(Dimension::Requests, 600, 600));
    first.complete(None);
    reserve(&account, &ask(1, 1)).await.failed(refused(SECOND * 30));
    tokio::time::advance(SECOND * 10).await;
    let queue = queue_of(&account).await;
    let hold = hold_of(&queue).unwrap();
    assert_eq!(hold.1, "rate_limited");
    assert_eq!(hold.0.as_secs_f64().round(), 20.0, "{hold:?}");
    let requests = limit(&account, Dimension::Requests).await;
    assert!(requests.used_ratio() >= Some(1.0), "calls are refused for it: {requests:?}");
    tokio::time::advance(SECOND * 21).await;
    assert_eq!(hold_of(&queue_of(&account).await), None);
    let requests = limit(&account, Dimension::Requests).await;
    assert!(requests.used_ratio() < Some(0.1), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn view_shows_requests_per_day_as_reported() {
    let account = account("groq").build().unwrap();
    let mut day = ReportedLimits::new();
    let window = SECOND * 86_400;
    let reading = LimitReading { limit: Some(14_400), remaining: Some(0), reset: None, window };
    day.add(Dimension::RequestsPerDay, reading);
    let mut first = reserve(&account, &ask(1, 1)).await;
    first.response_started(&day);
    first.complete(None);
    let shown = limit(&account, Dimension::RequestsPerDay).await;
    assert_eq!((shown.per_window(), shown.used_ratio()), (Some(14_400), Some(1.0)));
    let hold = hold_of(&queue_of(&account).await).unwrap();
    assert_eq!(hold.1, "requests_per_day");
}

#[tokio::test(start_paused = true)]
async fn view_shows_an_exhausted_model_as_held() {
    let account = account("openai").build().unwrap();
    let class = Class::ExhaustedQuota { after: Some(SECOND * 3_600) };
    let failure = Failure::new("openai".into(), class, http::StatusCode::TOO_MANY_REQUESTS);
    reserve(&account, &ask(1, 1)).await.failed(Box::new(failure).into());
    let hold = hold_of(&queue_of(&account).await).unwrap();
    assert_eq!((hold.1, hold.0), ("exhausted_quota", SECOND * 3_600));
}
