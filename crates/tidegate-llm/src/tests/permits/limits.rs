//! Configured limits: changes at run time and log lines.

use std::time::Duration;

use futures_util::future::join_all;
use tidegate_llm::plan::{ConstraintSource, RawConstraint};
use tidegate_llm::rate_limit::{Account, AccountLimits};
use tidegate_providers::Credential;
use tokio::time::{Instant, sleep};

use crate::tests::log::Log;

use super::{SECOND, account, ask, constraint, hello, requests, reserve, wait};

fn per_minute(requests: i64) -> tidegate_llm::plan::Constraint {
    let requests_per_minute = Some(requests);
    constraint(&RawConstraint { requests_per_minute, ..RawConstraint::default() })
}

#[tokio::test(start_paused = true)]
async fn changed_limits_wake_waiting_calls_and_keep_charges() {
    let account = requests("openai", 1, 1).build().unwrap();
    assert!(wait(&account, &ask(1, 1)).await.is_zero());
    let start = Instant::now();
    let waiting = tokio::spawn({
        let account = account.clone();
        async move { wait(&account, &ask(1, 1)).await }
    });
    sleep(SECOND * 6).await;
    assert!(!waiting.is_finished());
    account.reconfigure(per_minute(60), ConstraintSource::Override).unwrap();
    let waited = waiting.await.unwrap();
    // A tenth of a call refilled in six seconds; the rest takes 0.9 seconds.
    assert_eq!(waited, Duration::from_millis(6_900));
    assert_eq!(start.elapsed(), waited);
    assert_eq!(wait(&account, &ask(1, 1)).await, SECOND);
    assert_eq!(account.limits().account_limit().unwrap().0, per_minute(60));
}

#[tokio::test(start_paused = true)]
async fn limits_can_be_added_to_a_learning_account() {
    let account = account("openai").without_margin().build().unwrap();
    for _ in 0..10 {
        assert!(wait(&account, &ask(1, 1)).await.is_zero());
    }
    account.reconfigure(per_minute(60), ConstraintSource::Override).unwrap();
    assert!(wait(&account, &ask(1, 1)).await.is_zero());
    assert_eq!(wait(&account, &ask(1, 1)).await, SECOND);
    let other = account.reserve("another", &ask(1, 1)).await.unwrap();
    assert_eq!(other.waited(), SECOND, "for all models together");
}

#[tokio::test(start_paused = true)]
async fn credentials_have_separate_buckets() {
    let account = |key: &str| {
        let builder = Account::builder("openai", &Credential::new(key));
        builder.limits(per_minute(60), ConstraintSource::Override).build().unwrap()
    };
    let (one, other) = (account("sk-1"), account("sk-2"));
    assert!(wait(&one, &ask(1, 1)).await.is_zero());
    assert!(wait(&other, &ask(1, 1)).await.is_zero());
    assert!(!wait(&one, &ask(1, 1)).await.is_zero());
    assert_ne!(one.credential_id(), other.credential_id());
}

#[tokio::test(start_paused = true)]
async fn minimum_interval_is_kept() {
    let raw = RawConstraint { min_interval_ms: Some(250), ..RawConstraint::default() };
    let builder = account("openai").limits(constraint(&raw), ConstraintSource::Override);
    let account = builder.build().unwrap();
    assert!(wait(&account, &ask(1, 1)).await.is_zero());
    let next = reserve(&account, &ask(1, 1)).await;
    assert_eq!(next.waited_for(), [("min_interval", SECOND / 4)]);
}

/// One line per wait would flood a server's log.
#[tokio::test(start_paused = true)]
async fn server_logs_waits_once_a_minute_with_count_and_longest() {
    let log = Log::default();
    let _listening = log.listen();
    let account = requests("openai", 60, 1).log_waits_per_minute().build().unwrap();
    log.lines();
    for _ in 0..62 {
        wait(&account, &ask(1, 1)).await;
    }
    let call = ask(1, 1);
    let more = (0..3).map(|_| reserve(&account, &call));
    join_all(more).await.into_iter().for_each(|reservation| reservation.complete(None));
    assert_eq!(
        log.lines(),
        [
            "WARN Rate limited for provider 'openai': 1 calls waited, 1.00s at worst. scope=openai/default",
            "WARN Rate limited for provider 'openai': 60 calls waited, 1.00s at worst. scope=openai/default",
        ]
    );
    for _ in 0..57 {
        wait(&account, &ask(1, 1)).await;
    }
    assert_eq!(
        log.lines(),
        [
            "WARN Rate limited for provider 'openai': 60 calls waited, 3.00s at worst. scope=openai/default"
        ]
    );
}

/// An unknown limit once defaulted to a million tokens per second, which large accounts exceed.
#[tokio::test(start_paused = true)]
async fn account_without_limits_does_not_delay_calls() {
    let account = account("openai").build().unwrap();
    for _ in 0..400 {
        let reservation = reserve(&account, &ask(1_000, 900_000)).await;
        assert!(reservation.waited().is_zero());
        reservation.complete(None);
    }
}

fn tokens_of_models() -> AccountLimits {
    let tokens = |per_minute: i64| {
        let tokens_per_minute = Some(per_minute);
        constraint(&RawConstraint { tokens_per_minute, ..RawConstraint::default() })
    };
    AccountLimits::default()
        .model("gpt-4o", per_minute(60))
        .model("gpt-4o*", per_minute(120))
        .model("*embedding*", tokens(1_000_000))
}

/// Each entry has its own bucket; the most specific match applies.
#[tokio::test(start_paused = true)]
async fn model_limits_apply_separately() {
    let account =
        account("openai").account_limits(tokens_of_models()).without_margin().build().unwrap();
    let start = Instant::now();
    let timed = |model: &'static str, calls: usize| {
        let account = account.clone();
        async move {
            for _ in 0..calls {
                account.reserve(model, &hello()).await.unwrap().complete(None);
            }
            start.elapsed()
        }
    };
    let elapsed = tokio::join!(
        timed("gpt-4o", 5),
        timed("gpt-4o-mini", 5),
        timed("text-embedding-3-small", 50),
        timed("o1", 50),
    );
    assert_eq!(elapsed, (SECOND * 4, SECOND * 2, Duration::ZERO, Duration::ZERO));
    // Both models match the same entry.
    let start = Instant::now();
    tokio::join!(timed("gpt-4o-mini", 4), timed("GPT-4o-2024-08-06", 4));
    assert!(start.elapsed() >= SECOND * 7 / 2, "{:?}", start.elapsed());
}

/// The account's limit applies to all models together, and theirs within it.
#[tokio::test(start_paused = true)]
async fn model_limits_apply_within_the_account_limit() {
    let limits = tokens_of_models().all(per_minute(60), ConstraintSource::Override);
    let account = account("openai").account_limits(limits).without_margin().build().unwrap();
    let start = Instant::now();
    let models = ["gpt-4o", "gpt-4o-mini", "text-embedding-3-small", "o1"];
    let calls = models.map(|model| {
        let account = account.clone();
        async move {
            for _ in 0..3 {
                account.reserve(model, &hello()).await.unwrap().complete(None);
            }
        }
    });
    join_all(calls).await;
    assert_eq!(start.elapsed(), SECOND * 11, "twelve calls, one each second");
    account.configure(AccountLimits::default()).unwrap();
    let start = Instant::now();
    for _ in 0..20 {
        account.reserve("gpt-4o", &hello()).await.unwrap().complete(None);
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "nothing is configured any more");
}
