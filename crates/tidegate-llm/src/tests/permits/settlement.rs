//! What was reserved becomes what was used, by the provider's own rule.
//!
//! Most accounts here allow 100 tokens a second and have as many left, so that what is missing can be
//! read from how long the next call waits.

use std::time::Duration;

use tidegate_llm::plan::{RawConstraint, Source};
use tidegate_llm::rate_limit::{Account, Reservation};
use tidegate_llm::{Broken, CallError};
use tidegate_providers::{Class, Failure, Usage};

use super::{Ask, SECOND, account, ask, constraint, reserve, tokens, wait};

/// A call of so many tokens, whatever was learned: a call without input is never corrected.
fn of(tokens: u64) -> Ask {
    ask(0, tokens)
}

fn used(input: u64, output: u64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

fn failed(class: Class, status: u16) -> CallError {
    let status = http::StatusCode::from_u16(status).unwrap();
    Box::new(Failure::new("mistral".into(), class, status)).into()
}

fn broken(broken: Broken) -> CallError {
    CallError::Connection { provider: "mistral".into(), broken, source: None }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_used_is_given_back() {
    let account = tokens("mistral").await;
    reserve(&account, &ask(20, 80)).await.complete(Some(used(10, 10)));
    assert_eq!(wait(&account, &of(100)).await, SECOND / 5, "80 are there");
}

#[tokio::test(start_paused = true)]
async fn what_was_used_beyond_is_charged() {
    let account = tokens("mistral").await;
    reserve(&account, &ask(20, 80)).await.complete(Some(used(100, 200)));
    assert_eq!(wait(&account, &of(100)).await, SECOND * 3, "200 are owed");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_never_settles_keeps_its_charge() {
    let account = tokens("openai").await;
    reserve(&account, &ask(20, 80)).await.complete(Some(used(10, 10)));
    assert_eq!(wait(&account, &of(100)).await, SECOND);
}

#[tokio::test(start_paused = true)]
async fn tokens_from_the_cache_are_free_where_the_provider_says_so() {
    let usage = Usage { cache_read: 70, ..used(80, 10) };
    for (provider, missing) in [("anthropic", 20), ("mistral", 90)] {
        let account = tokens(provider).await;
        reserve(&account, &ask(20, 80)).await.complete(Some(usage));
        assert_eq!(wait(&account, &of(100)).await, SECOND * missing / 100, "{provider}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_sent_costs_nothing() {
    for provider in ["mistral", "openai"] {
        let account = tokens(provider).await;
        reserve(&account, &ask(20, 80)).await.failed(broken(Broken::NotConnected));
        assert!(wait(&account, &of(100)).await.is_zero(), "{provider}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_refused_costs_no_tokens_but_a_request() {
    let raw = RawConstraint {
        tokens_per_minute: Some(6_000),
        requests_per_minute: Some(6),
        ..RawConstraint::default()
    };
    let limits = constraint(&raw);
    for class in [Class::CredentialRejected, Class::TooLarge, Class::BadRequest] {
        let builder = account("mistral").limits(limits.clone(), Source::Override).exact();
        let account = builder.build().unwrap();
        reserve(&account, &ask(20, 80)).await.failed(failed(class, 400));
        let next = reserve(&account, &of(100)).await;
        assert_eq!(next.waited_for(), [("requests", SECOND * 10)], "{class:?}");
    }
}

/// OpenAI counts calls that fail; others give back what was not used.
#[tokio::test(start_paused = true)]
async fn a_call_that_fails_at_the_provider_costs_what_the_provider_charges() {
    for (provider, wait_of_next) in [("mistral", Duration::ZERO), ("openai", SECOND)] {
        for error in [failed(Class::Transient, 500), broken(Broken::Cut)] {
            let account = tokens(provider).await;
            let error = reserve(&account, &ask(20, 80)).await.failed(error);
            assert_eq!(wait(&account, &of(100)).await, wait_of_next, "{provider} {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_before_the_answer_pays_what_was_expected() {
    let account = tokens("mistral").await;
    drop(reserve(&account, &ask(20, 80)).await);
    assert_eq!(wait(&account, &of(100)).await, SECOND, "the provider may still be at it");
}

/// No provider admits more than its limit of a minute, so nobody else waits for more than that.
#[tokio::test(start_paused = true)]
async fn a_call_that_allows_itself_too_much_is_charged_a_minute_at_most() {
    type End = fn(Reservation);
    let ends: [(&str, End); 4] = [
        ("it fails", |call| drop(call.failed(failed(Class::Transient, 500)))),
        ("it is cut", |call| drop(call.failed(broken(Broken::Cut)))),
        ("nobody waits for it", drop),
        ("it is answered", |call| call.complete(None)),
    ];
    for (what, end) in ends {
        let account = minute();
        end(reserve(&account, &ask(20, 1_000_000)).await);
        assert_eq!(wait(&account, &of(6_000)).await, SECOND * 60, "{what}");
    }
    let account = minute();
    drop(reserve(&account, &ask(50_000, 10)).await);
    assert_eq!(wait(&account, &of(6_000)).await, SECOND * 60, "not for its input either");
    let account = minute();
    reserve(&account, &ask(12_000, 10)).await.complete(Some(used(12_000, 10)));
    assert!(wait(&account, &of(6_000)).await >= SECOND * 120, "what was used is charged");
}

/// An account of OpenAI that has a minute's worth, 6,000 tokens.
fn minute() -> Account {
    let raw = RawConstraint { tokens_per_minute: Some(6_000), ..RawConstraint::default() };
    account("openai").limits(constraint(&raw), Source::Override).exact().build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_learned_is_reserved_next_time() {
    let raw = RawConstraint { tokens_per_minute: Some(6_000_000), ..RawConstraint::default() };
    let builder = account("mistral").limits(constraint(&raw), Source::Override);
    let account = builder.build().unwrap();
    let unbounded = Ask { input: 100, ..Ask::default() };
    for _ in 0..50 {
        reserve(&account, &unbounded).await.complete(Some(used(150, 1_000)));
    }
    let tokens = reserve(&account, &unbounded).await.tokens();
    assert!((1_150..=1_350).contains(&tokens), "{tokens}");
    let bounded = reserve(&account, &ask(100, 50)).await.tokens();
    assert!((195..=205).contains(&bounded), "never more than a call allows itself: {bounded}");
}
