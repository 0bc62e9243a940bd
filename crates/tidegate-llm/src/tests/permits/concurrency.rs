//! Concurrency limits are used fully and slots do not leak.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{BoxFuture, join_all};
use tidegate::pacer::{PoolSize, SlotPool, Tuning};
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::models::{Model, Models, Profile};
use tidegate_llm::plan::RawConstraint;
use tidegate_llm::rate_limit::{Account, RateLimitLayer, local_engine};
use tidegate_llm::{Call, CallError, CallResponse, ConnectionFailure};
use tidegate_providers::{Class, Credential, Endpoint};
use tokio::task::JoinError;
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

use super::{MODEL, SECOND, account, call, constraint, hello, limited};

/// Counts concurrent calls at a provider and their maximum.
#[derive(Clone, Default)]
struct CallCounter {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

/// One call in flight, until dropped.
struct CountedCall(CallCounter);

impl CallCounter {
    fn enter(&self) -> CountedCall {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        CountedCall(self.clone())
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Wraps a mock so that its calls are counted.
    fn around(
        &self,
        mock: Mock,
    ) -> impl tower::Service<
        Call,
        Response = CallResponse,
        Error = CallError,
        Future = BoxFuture<'static, Result<CallResponse, CallError>>,
    > + Clone
    + Send
    + 'static {
        let counter = self.clone();
        service_fn(move |request: Call| -> BoxFuture<'static, Result<CallResponse, CallError>> {
            let counted = counter.enter();
            let mut mock = mock.clone();
            Box::pin(async move {
                let response = mock.call(request).await;
                drop(counted);
                response
            })
        })
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

fn slow(provider: &str) -> Mock {
    Mock::new(provider).always(Step::reply("yes").after(SECOND))
}

/// How call `number` ends.
fn step(number: usize) -> Step {
    let step = match number % 8 {
        0 => Step::reply("one two three"),
        1 => Step::fail(Class::Transient),
        2 => Step::connection_failure(ConnectionFailure::NotConnected),
        3 => Step::reply("one two three").pause(SECOND / 10),
        4 => Step::reply("one two three").then_disconnects(ConnectionFailure::Closed),
        5 => Step::fail(Class::BadRequest),
        6 => Step::fail(Class::Overloaded),
        _ => Step::reply("never heard").after(SECOND * 1_000),
    };
    step.after(SECOND / 100)
}

/// Runs call `number`: the caller reads the response, abandons it, or panics.
async fn attempt(account: Account, counter: CallCounter, number: usize) {
    let panics = number % 10 == 9;
    let mock = Mock::new("openai").always(step(number));
    let inner = counter.around(mock);
    let inner = service_fn(move |request| {
        let mut inner = inner.clone();
        async move {
            let response = inner.call(request).await;
            if panics {
                // Panics without printing a message.
                std::panic::resume_unwind(Box::new("a panic"));
            }
            response
        }
    });
    let service = RateLimitLayer::new(account, MODEL).layer(inner);
    let answered = async move {
        let mut response = service.oneshot(hello().streamed()).await.ok()?;
        let events = if number.is_multiple_of(3) { 1 } else { usize::MAX };
        for _ in 0..events {
            response.next().await?.ok()?;
        }
        Some(())
    };
    let _ = timeout(SECOND * 60, answered).await;
}

#[tokio::test(start_paused = true)]
async fn no_slot_leaks_however_a_thousand_calls_end() {
    let account = account("openai").concurrency(PoolSize::Fixed(8)).build().unwrap();
    let counter = CallCounter::default();
    let tasks =
        (0..1_000).map(|number| tokio::spawn(attempt(account.clone(), counter.clone(), number)));
    let ends = join_all(tasks).await;
    let panicked = ends.iter().filter(|end| end.as_ref().is_err_and(JoinError::is_panic)).count();
    assert!(panicked >= 50, "{panicked}");
    let gauges = account.gauges(MODEL).unwrap();
    assert_eq!((gauges.in_flight, gauges.waiting), (0, 0));
    assert_eq!((counter.now.load(Ordering::Relaxed), counter.most()), (0, 8));
    assert!(account.reserve(MODEL, &hello()).await.unwrap().waited().is_zero());
}

/// A registry of providers that take a second per call, with their counters.
fn registry(profile: Option<(&str, i64)>) -> (Models, [(CallCounter, &'static str); 2]) {
    let providers = ["openai", "ollama"].map(|name| (CallCounter::default(), name));
    let mut builder = Models::builder();
    for (counter, name) in &providers {
        builder = builder.backend(*name, counter.around(slow(name)));
    }
    if let Some((name, limit)) = profile {
        builder = builder.provider(name, Profile::new().max_concurrent_requests(limit));
    }
    (builder.build(), providers)
}

fn load(models: &Models, provider: &str) -> Model {
    models.load_model(provider, MODEL).rate_limit(true).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn four_workers_below_the_limit_do_not_wait() {
    let (models, [(counter, openai), _]) = registry(None);
    let start = Instant::now();
    let workers = (0..4).map(|_| {
        let model = load(&models, openai);
        async move {
            for _ in 0..10 {
                model.invoke(hello()).await.unwrap();
            }
        }
    });
    join_all(workers).await;
    assert_eq!(start.elapsed(), SECOND * 10, "only the duration of the calls");
    assert_eq!(counter.most(), 4);
}

#[tokio::test(start_paused = true)]
async fn calls_with_a_provider_never_exceed_its_limit() {
    let (models, [(counter, openai), _]) = registry(None);
    let loaded: Vec<_> = (0..40).map(|_| load(&models, openai)).collect();
    let start = Instant::now();
    join_all(loaded.iter().map(|model| model.invoke(hello()))).await;
    assert_eq!((counter.most(), start.elapsed()), (8, SECOND * 5));
}

#[tokio::test(start_paused = true)]
async fn ollama_serves_one_call_at_a_time_without_delaying_other_providers() {
    let (models, [(_, openai), (counter, ollama)]) = registry(None);
    let (near, far) = (load(&models, ollama), load(&models, openai));
    let start = Instant::now();
    let jobs = join_all((0..20).map(|_| near.invoke(hello())));
    let others = async {
        join_all((0..8).map(|_| far.invoke(hello()))).await;
        start.elapsed()
    };
    let (_, others) = tokio::join!(jobs, others);
    assert_eq!(others, SECOND, "while Ollama is full");
    assert_eq!((counter.most(), start.elapsed()), (1, SECOND * 20));
}

#[tokio::test(start_paused = true)]
async fn ollama_concurrency_can_be_configured() {
    let (models, [_, (counter, ollama)]) = registry(Some(("ollama", 4)));
    let model = load(&models, ollama);
    let start = Instant::now();
    join_all((0..8).map(|_| model.invoke(hello()))).await;
    assert_eq!((counter.most(), start.elapsed()), (4, SECOND * 2));
}

fn at_once(limit: i64) -> tidegate_llm::plan::Constraint {
    let limit = Some(limit);
    constraint(&RawConstraint { max_concurrent_requests: limit, ..RawConstraint::default() })
}

#[tokio::test(start_paused = true)]
async fn endpoint_limits_apply_separately() {
    let limits = [("extraction", 8), ("embeddings", 16), ("translation", 4)];
    let builder = limits.iter().fold(account("openai"), |builder, (name, limit)| {
        builder.endpoint(Endpoint::new(name), at_once(*limit))
    });
    let account = builder.concurrency(PoolSize::Fixed(60)).build().unwrap();
    let max_at = |name: &'static str| {
        let (counter, account) = (CallCounter::default(), account.clone());
        async move {
            let inner = counter.around(slow("openai"));
            let service = RateLimitLayer::new(account, MODEL).layer(inner);
            let request = || hello().endpoint(Endpoint::new(name));
            join_all((0..32).map(|_| service.clone().oneshot(request()))).await;
            counter.most()
        }
    };
    let start = Instant::now();
    let most = tokio::join!(
        max_at("extraction"),
        max_at("embeddings"),
        max_at("translation"),
        max_at("chat"),
    );
    assert_eq!(most, (8, 16, 4, 32));
    assert_eq!(start.elapsed(), SECOND * 8, "no endpoint waits for another");
}

/// Calls count towards the provider's limit whatever their endpoint, model and key.
#[tokio::test(start_paused = true)]
async fn endpoint_model_and_key_limits_apply_within_the_provider_limit() {
    let pool = SlotPool::new(&local_engine(), PoolSize::Fixed(5));
    let accounts = ["key-1", "key-2", "key-3"].map(|key| {
        Account::builder("openai", &Credential::new(key))
            .pool(&pool)
            .endpoint(Endpoint::new("embeddings"), at_once(4))
            .model("slow-*", at_once(1))
            .build()
            .unwrap()
    });
    let (counter, slowest) = (CallCounter::default(), CallCounter::default());
    let attempt = |account: &Account, model: &'static str, request: Call| {
        let (account, counter, slowest) = (account.clone(), counter.clone(), slowest.clone());
        tokio::spawn(async move {
            let reservation = account.reserve(model, &request).await.unwrap();
            let _visit = counter.enter();
            let _slow = model.starts_with("slow").then(|| slowest.enter());
            sleep(SECOND).await;
            reservation.complete(None);
        })
    };
    let start = Instant::now();
    let mut calls = Vec::new();
    for account in &accounts {
        for model in ["gpt-4o", "gpt-4o-mini"] {
            calls.extend((0..6).map(|_| attempt(account, model, hello())));
            let embed = || hello().endpoint(Endpoint::new("embeddings"));
            calls.extend((0..6).map(|_| attempt(account, model, embed())));
        }
    }
    for model in ["slow-1", "slow-2"] {
        calls.extend((0..3).map(|_| attempt(&accounts[0], model, hello())));
    }
    join_all(calls).await;
    assert_eq!((counter.most(), slowest.most()), (5, 1), "one of both slow models at a time");
    assert_eq!(start.elapsed(), SECOND * 16, "78 calls, five at a time");
    assert_eq!(pool.gauges().in_flight, 0);
}

fn adaptive(start: u64, cap: u64) -> PoolSize {
    PoolSize::Adaptive(Tuning::new(start, cap))
}

/// An endpoint keeps its own limit within a larger one.
#[tokio::test(start_paused = true)]
async fn changed_concurrency_applies_to_all_models() {
    let embeddings = Endpoint::new("embeddings");
    let builder = account("openai").endpoint(embeddings.clone(), at_once(4));
    let account = builder.concurrency(adaptive(2, 64)).build().unwrap();
    let limit = |model: &str| account.gauges(model).unwrap().concurrency;
    let embed = hello().endpoint(embeddings);
    assert_eq!(limit(MODEL), Some(2));
    account.pool().restart(16);
    assert_eq!((limit(MODEL), limit("another")), (Some(16), Some(16)));
    let held: Vec<_> = join_all((0..4).map(|_| account.reserve(MODEL, &embed))).await;
    let fifth = timeout(SECOND, account.reserve(MODEL, &embed)).await;
    assert!(fifth.is_err(), "its own limit is four");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn larger_concurrency_wakes_waiting_calls() {
    let account = account("ollama").build().unwrap();
    let service = limited(&account, &slow("ollama"));
    let start = Instant::now();
    let calls = join_all((0..6).map(|_| call(&service)));
    let change = async {
        sleep(SECOND / 2).await;
        account.pool().restart(5);
    };
    tokio::join!(calls, change);
    assert_eq!(start.elapsed(), SECOND * 2, "one ends at 1 s, four at 1.5 s, the last at 2 s");
}
