//! Recovery from lock-outs and exhausted quotas.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_llm::rate_limit::Account;
use tidegate_llm::telemetry::Observer;
use tidegate_llm::{Call, CallError, CallResponse};
use tidegate_providers::{Chat, Class, Credential, Dialect, Provider};
use tidegate_sim::{self as sim, Fault, Hint, Limits, Simulator};
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

use crate::traffic::{Dice, KEY, LABEL, MODEL, adapter, stack};

const SECOND: Duration = Duration::from_secs(1);

fn simulator(dialect: sim::Dialect, limits: Limits) -> Simulator {
    let account = sim::Account::new(dialect, LABEL, KEY).model(MODEL, limits);
    Simulator::builder().account(account).build().unwrap()
}

/// The stack with default settings.
fn model(
    simulator: &Simulator,
    dialect: Dialect,
    account: &Account,
    seed: u64,
) -> impl Service<Call, Response = CallResponse, Error = CallError, Future: Send> + Clone + Send + 'static
{
    stack(adapter(simulator, dialect, &Dice::new(seed)), dialect, account, seed)
}

#[derive(Debug, Default)]
struct Decreases(AtomicU64);

impl Observer for Decreases {
    fn slowed_down(&self, _provider: &Provider, _limiter_key: &str) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Locks four workers out for a minute at the same instant and returns when each got a response.
async fn locked_out(hint: Hint, decreases: &Arc<Decreases>) -> (Simulator, Vec<Duration>) {
    let simulator =
        simulator(sim::Dialect::OpenAi, Limits::new().requests_per_minute(600).slice(SECOND));
    let account = Account::builder("openai", &Credential::new(KEY));
    let account = account.observer(decreases.clone()).build().unwrap();
    simulator.lock_out(LABEL, SECOND * 60, hint).unwrap();
    let start = Instant::now();
    let workers = (0..4).map(|worker| {
        let model = model(&simulator, Dialect::OpenAi, &account, worker);
        async move {
            let call = Call::new(Chat::user(format!("worker {worker}")));
            model.oneshot(call).await.unwrap().into_reply().await.unwrap();
            start.elapsed()
        }
    });
    let answered = join_all(workers).await;
    (simulator, answered)
}

#[tokio::test(start_paused = true)]
async fn workers_recover_from_a_lock_out_without_a_thundering_herd() {
    let decreases = Arc::new(Decreases::default());
    let (simulator, answered) = locked_out(Hint::Sent, &decreases).await;
    assert!(answered.iter().all(|time| (SECOND * 60..SECOND * 75).contains(time)), "{answered:?}");
    assert_eq!(decreases.0.load(Ordering::Relaxed), 1, "four throttles, one decrease");
    assert_eq!(simulator.ledger().seen(), 8, "one attempt each before, and one after");
    let spread = simulator.ledger().retry_distribution(LABEL, SECOND..SECOND * 300).unwrap();
    assert_eq!(spread.densest, 1, "{spread:?}");
    assert!(spread.closest >= Duration::from_millis(50), "{spread:?}");
}

#[tokio::test(start_paused = true)]
async fn workers_recover_from_a_lock_out_without_retry_after() {
    let decreases = Arc::new(Decreases::default());
    let (simulator, answered) = locked_out(Hint::Withheld, &decreases).await;
    assert!(answered.iter().all(|time| *time < SECOND * 190), "{answered:?}");
    let spread = simulator.ledger().retry_distribution(LABEL, SECOND..SECOND * 300).unwrap();
    assert!(spread.densest <= 2, "{spread:?}");
    assert!(spread.retries <= 4 * 8, "{spread:?}");
}

#[tokio::test(start_paused = true)]
async fn exhausted_monetary_quota_is_tried_once() {
    let simulator = simulator(sim::Dialect::OpenAi, Limits::new().requests_per_minute(600));
    simulator.inject(LABEL, Fault::InsufficientQuota, 100).unwrap();
    let account = Account::builder("openai", &Credential::new(KEY)).build().unwrap();
    let model = model(&simulator, Dialect::OpenAi, &account, 1);
    let start = Instant::now();
    let error = model.clone().oneshot(Call::new(Chat::user("one"))).await.unwrap_err();
    assert!(matches!(error.class(), Class::ExhaustedQuota { .. }), "{error:?}");
    assert_eq!(simulator.ledger().seen(), 1);
    // Further calls fail without being sent.
    let error = model.oneshot(Call::new(Chat::user("two"))).await.unwrap_err();
    assert!(matches!(error, CallError::QuotaExhausted(_)), "{error:?}");
    assert_eq!(simulator.ledger().seen(), 1);
    assert!(start.elapsed() < SECOND, "no call waited");
}

/// The error says "22s" although the quota resets the next day.
#[tokio::test(start_paused = true)]
async fn gemini_daily_quota_ignores_its_short_retry_delay() {
    let limits = Limits::new().requests_per_minute(600).requests_per_day(3, sim::Zone::UTC);
    let simulator = simulator(sim::Dialect::Gemini, limits);
    let account = Account::builder("gemini", &Credential::new(KEY)).build().unwrap();
    let model = model(&simulator, Dialect::Gemini, &account, 1);
    for _ in 0..3 {
        let answer = model.clone().oneshot(Call::new(Chat::user("hello"))).await.unwrap();
        answer.into_reply().await.unwrap();
    }
    let start = Instant::now();
    let error = model.clone().oneshot(Call::new(Chat::user("one more"))).await.unwrap_err();
    assert!(matches!(error.class(), Class::ExhaustedQuota { .. }), "{error:?}");
    assert!(error.retry_after().unwrap() > SECOND * 60, "{error:?}");
    assert_eq!(simulator.ledger().seen(), 4);
    assert!(start.elapsed() < SECOND * 2, "{:?}", start.elapsed());
}
