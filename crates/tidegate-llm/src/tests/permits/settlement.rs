//! Settlement of reserved tokens with actual usage, by the provider's rule.
//!
//! Most accounts here allow 100 tokens per second and have 100 left, so the wait of the next call
//! shows what is missing.

use std::time::Duration;

use tidegate_llm::plan::{ConstraintSource, RawConstraint};
use tidegate_llm::rate_limit::{Account, Reservation};
use tidegate_llm::{CallError, ConnectionFailure};
use tidegate_providers::{Class, Failure, Usage};

use super::{SECOND, TestCall, account, ask, constraint, reserve, tokens, wait};

/// A call of exactly `tokens` tokens: calls without input are never corrected.
fn of(tokens: u64) -> TestCall {
    ask(0, tokens)
}

fn used(input: u64, output: u64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

fn failed(class: Class, status: u16) -> CallError {
    let status = http::StatusCode::from_u16(status).unwrap();
    Box::new(Failure::new("mistral".into(), class, status)).into()
}

fn connection_failure(kind: ConnectionFailure) -> CallError {
    CallError::Connection { provider: "mistral".into(), kind, source: None }
}

#[tokio::test(start_paused = true)]
async fn unused_tokens_are_refunded() {
    let account = tokens("mistral").await;
    reserve(&account, &ask(20, 80)).await.complete(Some(used(10, 10)));
    assert_eq!(wait(&account, &of(100)).await, SECOND / 5, "80 are left");
}

#[tokio::test(start_paused = true)]
async fn usage_beyond_the_reserve_is_charged() {
    let account = tokens("mistral").await;
    reserve(&account, &ask(20, 80)).await.complete(Some(used(100, 200)));
    assert_eq!(wait(&account, &of(100)).await, SECOND * 3, "200 are owed");
}

#[tokio::test(start_paused = true)]
async fn provider_without_refunds_keeps_the_charge() {
    let account = tokens("openai").await;
    reserve(&account, &ask(20, 80)).await.complete(Some(used(10, 10)));
    assert_eq!(wait(&account, &of(100)).await, SECOND);
}

#[tokio::test(start_paused = true)]
async fn cached_tokens_are_free_where_the_provider_says_so() {
    let usage = Usage { cache_read: 70, ..used(80, 10) };
    for (provider, missing) in [("anthropic", 20), ("mistral", 90)] {
        let account = tokens(provider).await;
        reserve(&account, &ask(20, 80)).await.complete(Some(usage));
        assert_eq!(wait(&account, &of(100)).await, SECOND * missing / 100, "{provider}");
    }
}

#[tokio::test(start_paused = true)]
async fn unsent_call_costs_nothing() {
    for provider in ["mistral", "openai"] {
        let account = tokens(provider).await;
        reserve(&account, &ask(20, 80))
            .await
            .failed(connection_failure(ConnectionFailure::NotConnected));
        assert!(wait(&account, &of(100)).await.is_zero(), "{provider}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_call_costs_a_request_but_no_tokens() {
    let raw = RawConstraint {
        tokens_per_minute: Some(6_000),
        requests_per_minute: Some(6),
        ..RawConstraint::default()
    };
    let limits = constraint(&raw);
    for class in [Class::CredentialRejected, Class::TooLarge, Class::BadRequest] {
        let builder =
            account("mistral").limits(limits.clone(), ConstraintSource::Override).without_margin();
        let account = builder.build().unwrap();
        reserve(&account, &ask(20, 80)).await.failed(failed(class, 400));
        let next = reserve(&account, &of(100)).await;
        assert_eq!(next.waited_for(), [("requests", SECOND * 10)], "{class:?}");
    }
}

/// OpenAI charges failed calls; others refund what was not used.
#[tokio::test(start_paused = true)]
async fn failed_call_costs_what_the_provider_charges() {
    for (provider, wait_of_next) in [("mistral", Duration::ZERO), ("openai", SECOND)] {
        for error in [failed(Class::Transient, 500), connection_failure(ConnectionFailure::Closed)]
        {
            let account = tokens(provider).await;
            let error = reserve(&account, &ask(20, 80)).await.failed(error);
            assert_eq!(wait(&account, &of(100)).await, wait_of_next, "{provider} {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn call_that_timed_out_is_charged_what_was_expected() {
    for provider in ["mistral", "openai"] {
        let account = tokens(provider).await;
        let error = connection_failure(ConnectionFailure::TimedOut);
        reserve(&account, &ask(20, 80)).await.failed(error);
        assert_eq!(wait(&account, &of(100)).await, SECOND, "{provider}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_is_charged_what_was_expected() {
    let account = tokens("mistral").await;
    drop(reserve(&account, &ask(20, 80)).await);
    assert_eq!(wait(&account, &of(100)).await, SECOND, "the provider may still be working on it");
}

/// A provider never admits more than its limit per minute, so other calls never wait for more than
/// that.
#[tokio::test(start_paused = true)]
async fn excessive_max_tokens_are_charged_a_minute_at_most() {
    type End = fn(Reservation);
    let ends: [(&str, End); 4] = [
        ("it fails", |call| drop(call.failed(failed(Class::Transient, 500)))),
        ("it is interrupted", |call| {
            drop(call.failed(connection_failure(ConnectionFailure::Closed)));
        }),
        ("the caller cancels", drop),
        ("it completes", |call| call.complete(None)),
    ];
    for (what, end) in ends {
        let account = minute();
        end(reserve(&account, &ask(20, 1_000_000)).await);
        assert_eq!(wait(&account, &of(6_000)).await, SECOND * 60, "{what}");
    }
    let account = minute();
    drop(reserve(&account, &ask(50_000, 10)).await);
    assert_eq!(wait(&account, &of(6_000)).await, SECOND * 60, "nor for its input");
    let account = minute();
    reserve(&account, &ask(12_000, 10)).await.complete(Some(used(12_000, 10)));
    assert!(wait(&account, &of(6_000)).await >= SECOND * 120, "what was used is charged");
}

/// An OpenAI account with a minute's worth of 6,000 tokens left.
fn minute() -> Account {
    let raw = RawConstraint { tokens_per_minute: Some(6_000), ..RawConstraint::default() };
    account("openai")
        .limits(constraint(&raw), ConstraintSource::Override)
        .without_margin()
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn learned_usage_is_reserved_for_the_next_call() {
    let raw = RawConstraint { tokens_per_minute: Some(6_000_000), ..RawConstraint::default() };
    let builder = account("mistral").limits(constraint(&raw), ConstraintSource::Override);
    let account = builder.build().unwrap();
    let unbounded = TestCall { input: 100, ..TestCall::default() };
    for _ in 0..50 {
        reserve(&account, &unbounded).await.complete(Some(used(150, 1_000)));
    }
    let tokens = reserve(&account, &unbounded).await.reserved_tokens();
    assert!((1_150..=1_350).contains(&tokens), "{tokens}");
    let bounded = reserve(&account, &ask(100, 50)).await.reserved_tokens();
    assert!((195..=205).contains(&bounded), "never more than max_tokens: {bounded}");
}
