//! Commands that get no permits, or whose response does not arrive: which limit it was, what is kept
//! of the deadline, and what stays charged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::pacer::AcquireError;
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::pipeline::{Pipeline, PlanLimit, RateLimitHandler};
use tidegate_llm::plan::{PlanRequest, Planner, RawConstraint};
use tidegate_llm::{Call, CallError, CallResponse, ConnectionFailure};
use tidegate_providers::{Chat, Reply, Usage};
use tokio::time::Instant;
use tower::{Service, ServiceExt as _, service_fn};

const SECOND: Duration = Duration::from_secs(1);

fn request(limits: RawConstraint) -> PlanRequest {
    PlanRequest::new().model("gpt-4o").rate_limits(limits)
}

fn pipeline<S>(api: S) -> Pipeline<PlanLimit<S>>
where
    S: Service<Call, Response = CallResponse, Error = CallError>,
{
    Pipeline::new(Planner::default(), RateLimitHandler::new(), api)
}

fn hello() -> Call {
    Call::new(Chat::user("hello"))
}

/// The only command that waits, or would wait, still learns which limit that is.
#[tokio::test(start_paused = true)]
async fn refusal_names_the_limit_of_the_only_waiter() {
    let none = RawConstraint::default;
    let rapid = RawConstraint { requests_per_minute: Some(60_000), ..none() };
    for (limits, expected) in [
        (RawConstraint { requests_per_minute: Some(1), ..none() }, ("requests", 60)),
        (RawConstraint { tokens_per_minute: Some(1), ..rapid.clone() }, ("tokens", 120)),
        (RawConstraint { min_interval_ms: Some(50_000), ..rapid.clone() }, ("min_interval", 50)),
    ] {
        let mut pipeline = pipeline(Mock::new("openai").always(short()));
        let request = request(limits);
        pipeline.run(&request, hello()).await.unwrap();
        for hasty in [hello().max_wait(SECOND), hello().deadline(SECOND)] {
            let began = Instant::now();
            let error = pipeline.run(&request, hasty).await.unwrap_err();
            assert_eq!(began.elapsed(), Duration::ZERO, "refused at once");
            let CallError::NoPermit { source, limited_by, after, .. } = error else {
                panic!("{error}")
            };
            assert!(matches!(source, AcquireError::TooLong { .. }), "{source}");
            assert_eq!((limited_by, after), (Some(expected.0), Some(SECOND * expected.1)));
        }
    }
}

/// A reply that used two tokens.
fn short() -> Step {
    let mut reply = Reply::text("done");
    reply.usage = Some(Usage { input: 1, output: 1, ..Usage::default() });
    Step::from_reply(reply)
}

/// The API has what the wait left of the deadline, without a retry layer.
#[tokio::test(start_paused = true)]
async fn api_has_what_the_wait_left_of_the_deadline() {
    let mock = Mock::new("openai").then(short()).always(short().after(SECOND * 3_600));
    let mut pipeline = pipeline(mock.clone());
    let request =
        request(RawConstraint { requests_per_minute: Some(3), ..RawConstraint::default() });
    pipeline.run(&request, hello()).await.unwrap();
    let began = Instant::now();
    let error = pipeline.run(&request, hello().deadline(SECOND * 30)).await.unwrap_err();
    let CallError::Connection { kind, .. } = error else { panic!("{error}") };
    assert_eq!((kind, began.elapsed()), (ConnectionFailure::TimedOut, SECOND * 30));
    let left = mock.calls()[1].clone();
    assert!(format!("{left:?}").contains("deadline: Some(10s)"), "after a wait of 20 s: {left:?}");
}

/// Calls an API that fails like this first, and returns how long the next command waits for tokens.
async fn wait_after(error: impl Fn() -> CallError + Clone + Send + Sync + 'static) -> Duration {
    let mock = Mock::new("openai").always(short());
    let is_first = Arc::new(AtomicBool::new(true));
    let api = service_fn(move |call: Call| {
        let is_first = is_first.swap(false, Ordering::Relaxed);
        let (mock, error) = (mock.clone(), error.clone());
        async move { if is_first { Err(error()) } else { mock.oneshot(call).await } }
    });
    let mut pipeline = pipeline(api);
    let limits = RawConstraint {
        requests_per_minute: Some(60_000),
        tokens_per_minute: Some(60),
        ..RawConstraint::default()
    };
    let (request, call) = (request(limits), Call::new(Chat::user("hello").max_tokens(100)));
    pipeline.run(&request, call.clone()).await.unwrap_err();
    let began = Instant::now();
    pipeline.run(&request, call).await.unwrap();
    began.elapsed()
}

/// A call whose response did not arrive may have been served and counted, as one that is dropped.
#[tokio::test(start_paused = true)]
async fn call_without_a_response_keeps_its_estimate() {
    let lost =
        |kind| move || CallError::Connection { provider: "openai".into(), kind, source: None };
    let unreadable =
        || CallError::InvalidResponse { provider: "openai".into(), source: "no JSON".into() };
    for kind in [ConnectionFailure::TimedOut, ConnectionFailure::Closed] {
        assert!(wait_after(lost(kind)).await > SECOND * 100, "{kind:?}");
    }
    assert!(wait_after(unreadable).await > SECOND * 100);
    for kind in [
        ConnectionFailure::Refused,
        ConnectionFailure::HostNotFound,
        ConnectionFailure::Tls,
        ConnectionFailure::ConnectTimedOut,
        ConnectionFailure::NotConnected,
    ] {
        assert_eq!(wait_after(lost(kind)).await, Duration::ZERO, "{kind:?}: nothing was sent");
    }
}
