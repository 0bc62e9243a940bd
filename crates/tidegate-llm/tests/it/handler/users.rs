//! Users in the pipeline (R107, R109): each has buckets of its own, by a key from the caller's own
//! context. Every outgoing call takes permits, and gives back what it did not use.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join;
use tidegate::pacer::AcquireError;
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::pipeline::{Command, Pipeline, PlanLimit, Planned, RateLimitHandler};
use tidegate_llm::plan::{PlanRequest, Planner, RawConstraint};
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::telemetry::Observer;
use tidegate_llm::{Call, CallError, CallResponse, ConnectionFailure};
use tidegate_providers::{Chat, Class, Provider, Reply, Usage};
use tokio::time::{Instant, advance};
use tower::{Layer, Service, ServiceExt as _, service_fn};

const SECOND: Duration = Duration::from_secs(1);

/// The context of a program.
#[derive(Clone, Debug)]
struct Session {
    user_id: Option<&'static str>,
}

type Users = RateLimitHandler<Command<Session>>;

fn per_user_key(_: &Provider, planned: &Planned<Command<Session>>) -> Vec<String> {
    let user = planned.command.context.user_id.unwrap_or("default");
    vec!["user".to_owned(), user.to_owned()]
}

fn users() -> Users {
    RateLimitHandler::new().key_extractor(per_user_key)
}

/// One request per second, and 10 tokens per second.
fn request() -> PlanRequest {
    limited_to(60)
}

fn limited_to(requests: i64) -> PlanRequest {
    PlanRequest::new().model("gpt-4o").rate_limits(RawConstraint {
        requests_per_minute: Some(requests),
        tokens_per_minute: Some(600),
        ..RawConstraint::default()
    })
}

/// A call of a user that may use hundred tokens of output.
fn command(user_id: impl Into<Option<&'static str>>) -> Command<Session> {
    let call = Call::new(Chat::user("hello").max_tokens(100));
    Command::new(call, Session { user_id: user_id.into() })
}

/// A reply that used this many tokens, one of them for input.
fn used(tokens: u64) -> Step {
    let mut reply = Reply::text("done");
    reply.usage = Some(Usage { input: 1, output: tokens - 1, ..Usage::default() });
    Step::from_reply(reply)
}

async fn run<S>(pipeline: &Pipeline<S, Session>, user: impl Into<Option<&'static str>>) -> Duration
where
    S: Service<Planned<Command<Session>>, Response = CallResponse, Error = CallError> + Clone,
{
    let start = Instant::now();
    pipeline.clone().run(&request(), command(user)).await.unwrap();
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn users_have_buckets_of_their_own() {
    let mock = Mock::new("openai").always(used(2));
    let limits = users();
    let pipeline = Pipeline::new(Planner::default(), limits.clone(), mock.clone());
    for user in ["ann", "bob"] {
        assert_eq!(run(&pipeline, user).await, Duration::ZERO);
    }
    let (ann, bob) = join(run(&pipeline, "ann"), run(&pipeline, "bob")).await;
    assert_eq!((ann, bob), (SECOND, SECOND), "one a second each");
    // Without a user, all commands share the key of `default`.
    assert_eq!(run(&pipeline, None).await, Duration::ZERO);
    assert_eq!(run(&pipeline, "default").await, SECOND);
    assert_eq!((mock.call_count(), limits.keys_in_use()), (6, 0));
}

/// Every attempt is an outgoing call, so it takes a permit of its own.
#[tokio::test(start_paused = true)]
async fn retries_take_permits_of_their_own() {
    let mock = Mock::new("openai").always(used(2));
    mock.push(Step::fail(Class::Transient));
    mock.push(Step::fail(Class::Transient));
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (log, start) = (sent.clone(), Instant::now());
    let api = service_fn(move |call: Call| {
        log.lock().unwrap().push(start.elapsed());
        mock.clone().oneshot(call)
    });
    let retry = RetryLayer::new("openai").base_delay(SECOND / 10).jitter_percent(0);
    let pipeline = Pipeline::new(Planner::default(), users(), api).layer(&retry);
    assert_eq!(run(&pipeline, "ann").await, SECOND * 2, "not after the delay of 100 ms");
    assert_eq!(run(&pipeline, "bob").await, Duration::ZERO, "retries of others do not count");
    assert_eq!(run(&pipeline, "ann").await, SECOND);
    let at = |secs: u32| SECOND * secs;
    assert_eq!(*sent.lock().unwrap(), [at(0), at(1), at(2), at(2), at(3)]);
}

/// The layers around the rate limit see the context too.
#[tokio::test(start_paused = true)]
async fn context_passes_through_the_layers_of_the_api() {
    #[derive(Clone)]
    struct Logged(Arc<Mutex<Vec<Option<&'static str>>>>);

    impl<S> Layer<S> for Logged {
        type Service = LoggedService<S>;

        fn layer(&self, inner: S) -> LoggedService<S> {
            LoggedService { inner, log: self.clone() }
        }
    }

    #[derive(Clone)]
    struct LoggedService<S> {
        inner: S,
        log: Logged,
    }

    impl<S: Service<Planned<Command<Session>>>> Service<Planned<Command<Session>>>
        for LoggedService<S>
    {
        type Response = S::Response;
        type Error = S::Error;
        type Future = S::Future;

        fn poll_ready(
            &mut self,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), S::Error>> {
            self.inner.poll_ready(context)
        }

        fn call(&mut self, planned: Planned<Command<Session>>) -> S::Future {
            self.log.0.lock().unwrap().push(planned.command.context.user_id);
            self.inner.call(planned)
        }
    }

    let log = Logged(Arc::default());
    let pipeline =
        Pipeline::new(Planner::default(), users(), Mock::new("openai")).layer(&log.clone());
    run(&pipeline, "ann").await;
    run(&pipeline, None).await;
    assert_eq!(*log.0.lock().unwrap(), [Some("ann"), None]);
}

/// Returns the time between the start of a call that ends like this and that of the next one. The
/// next one goes into debt, so it waits until the bucket is full again.
async fn wait_after(step: Step) -> Duration {
    let mock = Mock::new("openai").always(used(2)).then(step);
    let mut pipeline = Pipeline::new(Planner::default(), users(), mock);
    // So many requests that only tokens make it wait.
    let request = limited_to(60_000);
    let _ = pipeline.run(&request, command("ann")).await;
    advance(Duration::from_millis(1)).await;
    let start = Instant::now();
    pipeline.run(&request, command("ann")).await.unwrap();
    start.elapsed() + Duration::from_millis(1)
}

#[tokio::test(start_paused = true)]
async fn call_is_charged_for_what_it_used() {
    assert_eq!(wait_after(used(2)).await, SECOND / 5, "the rest of about 100 is given back");
    assert_eq!(wait_after(used(50)).await, SECOND * 5);
    assert_eq!(wait_after(used(500)).await, SECOND * 50, "more than was estimated");
}

#[tokio::test(start_paused = true)]
async fn failed_call_gives_its_tokens_back() {
    for class in [Class::BadRequest, Class::Transient, Class::CredentialRejected] {
        assert_eq!(wait_after(Step::fail(class)).await, Duration::from_millis(1), "{class:?}");
    }
    let refused = Step::connection_failure(ConnectionFailure::NotConnected);
    assert_eq!(wait_after(refused).await, Duration::from_millis(1));
}

/// A call that the provider refused counts as a request there; one that was not sent does not.
#[tokio::test(start_paused = true)]
async fn only_calls_that_were_sent_count_as_requests() {
    for (step, wait) in [
        (Step::fail(Class::BadRequest), SECOND),
        (Step::connection_failure(ConnectionFailure::NotConnected), Duration::ZERO),
    ] {
        let mock = Mock::new("openai").always(used(2)).then(step);
        let pipeline = Pipeline::new(Planner::default(), users(), mock);
        pipeline.clone().run(&request(), command("ann")).await.unwrap_err();
        assert_eq!(run(&pipeline, "ann").await, wait);
    }
}

/// A caller that goes away before the API is ready has sent nothing.
#[tokio::test(start_paused = true)]
async fn call_that_is_dropped_before_it_is_made_gives_everything_back() {
    /// Is never ready.
    #[derive(Clone)]
    struct Busy;

    impl Service<Call> for Busy {
        type Response = CallResponse;
        type Error = CallError;
        type Future = std::future::Pending<Result<CallResponse, CallError>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), CallError>> {
            std::task::Poll::Pending
        }

        fn call(&mut self, _: Call) -> Self::Future {
            std::future::pending()
        }
    }

    let limits = users();
    let mut busy = Pipeline::new(Planner::default(), limits.clone(), Busy);
    let request = request();
    let call = busy.run(&request, command("ann"));
    assert!(tokio::time::timeout(SECOND / 2, call).await.is_err());
    let pipeline = Pipeline::new(Planner::default(), limits, Mock::new("openai"));
    assert_eq!(run(&pipeline, "ann").await, Duration::ZERO);
}

/// The limits of plans can stand anywhere in a stack of layers: each call is charged.
#[tokio::test(start_paused = true)]
async fn handler_is_a_layer() {
    let limits = users();
    let mut service: PlanLimit<Mock, Session> = limits.layer(Mock::new("openai").always(used(2)));
    let plan = Planner::default().plan(&request()).unwrap();
    let start = Instant::now();
    for _ in 0..3 {
        let planned = Planned::new(command("ann"), plan.clone());
        let response = service.ready().await.unwrap().call(planned).await.unwrap();
        assert_eq!(limits.keys_in_use(), 0, "a complete response is settled");
        assert_eq!(response.into_reply().await.unwrap().text, "done");
    }
    assert_eq!(start.elapsed(), SECOND * 2);
}

/// A call may not wait for longer than its options say.
#[tokio::test(start_paused = true)]
async fn maximum_wait_of_a_call_is_kept() {
    let mock = Mock::new("openai").always(used(2));
    let mut pipeline = Pipeline::new(Planner::default(), users(), mock.clone());
    pipeline.run(&request(), command("ann")).await.unwrap();
    let hasty = Call::new(Chat::user("hello")).max_wait(SECOND / 2);
    let context = Session { user_id: Some("ann") };
    let error = pipeline.run(&request(), Command::new(hasty, context)).await.unwrap_err();
    let CallError::NoPermit { after, .. } = &error else { panic!("{error}") };
    assert_eq!((*after, mock.call_count()), (Some(SECOND), 1));
}

/// A deadline that ends before there is a permit is none that the provider missed.
#[tokio::test(start_paused = true)]
async fn deadline_missed_in_the_queue_names_the_limit() {
    #[derive(Debug, Default)]
    struct Refusals(Mutex<Vec<Option<&'static str>>>);

    impl Observer for Refusals {
        fn refused(&self, _: &Provider, limited_by: Option<&'static str>) {
            self.0.lock().unwrap().push(limited_by);
        }
    }

    let mock = Mock::new("openai").always(Step::reply("late").after(SECOND * 3_600));
    let refusals = Arc::new(Refusals::default());
    let limits = users().observer(refusals.clone());
    let pipeline = Pipeline::new(Planner::default(), limits, mock.clone());
    let pipeline = pipeline.layer(&RetryLayer::new("openai"));
    let one_slot = RawConstraint { max_concurrent_requests: Some(1), ..RawConstraint::default() };
    let request = PlanRequest::new().model("gpt-4o").rate_limits(one_slot);
    let (mut busy, mut late) = (pipeline.clone(), pipeline);
    let occupied = tokio::spawn({
        let request = request.clone();
        async move { busy.run(&request, command("ann")).await.map(drop) }
    });
    tokio::task::yield_now().await;
    let due = Call::new(Chat::user("hello")).deadline(SECOND * 30);
    let start = Instant::now();
    let due = Command::new(due, Session { user_id: Some("ann") });
    let error = late.run(&request, due).await.unwrap_err();
    let CallError::NoPermit { source, limited_by, .. } = &error else { panic!("{error}") };
    assert!(matches!(source, AcquireError::TimedOut(_)), "{source}");
    assert_eq!((*limited_by, start.elapsed()), (Some("concurrency"), SECOND * 30));
    assert_eq!((error.was_sent(), mock.call_count()), (false, 1));
    assert_eq!(*refusals.0.lock().unwrap(), [Some("concurrency")]);
    occupied.abort();
}
