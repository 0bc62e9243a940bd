//! Answers that are read, broken off or left unread: what they cost in the end.
//!
//! Accounts allow 100 tokens a second; the next call of 100 tells what is missing.

use std::time::Duration;

use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::rate_limit::Account;
use tidegate_llm::{Answer, Broken, CallError};
use tidegate_providers::{Event, Provider, Reply, ReportedLimits, Usage, tokens};

use super::{
    SECOND, account, ask, call, hello, limited, reserve, tokens as account_of_tokens, wait,
};

const MILLI: Duration = Duration::from_millis(1);

/// An answer that comes as these events, with a reservation of 20 and 80 tokens.
async fn streamed(account: &Account, events: Vec<Result<Event, CallError>>) -> Answer {
    let provider: Provider = account.provider().clone();
    let mut reservation = reserve(account, &ask(20, 80)).await;
    let mut answer = Answer::streamed(provider, Box::pin(futures_util::stream::iter(events)));
    reservation.heard(&ReportedLimits::nothing());
    answer.keep(reservation);
    answer
}

/// An answer that is all here, with the same reservation.
async fn kept(account: &Account, reply: Reply) -> Answer {
    let mut reservation = reserve(account, &ask(20, 80)).await;
    let mut answer = Answer::complete(account.provider().clone(), reply);
    reservation.heard(&ReportedLimits::nothing());
    answer.keep(reservation);
    answer
}

fn words(words: usize) -> String {
    " tide".repeat(words)
}

fn text(count: usize) -> Result<Event, CallError> {
    Ok(Event::Text(words(count)))
}

/// The tokens of so many words, and others.
fn with_words(others: u64, count: usize) -> u128 {
    u128::from(others + tokens::count(&words(count)))
}

fn usage(usage: Usage) -> Result<Event, CallError> {
    Ok(Event::Usage(usage))
}

fn cut() -> Result<Event, CallError> {
    let provider = "mistral".into();
    Err(CallError::Connection { provider, broken: Broken::Cut, source: None })
}

/// What the next call finds missing of 100 tokens.
async fn missing(account: &Account) -> u128 {
    (wait(account, &ask(0, 100)).await / 10).as_millis()
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_read_to_its_end_costs_what_it_used() {
    let account = account_of_tokens("mistral").await;
    let spent = Usage { input: 15, output: 15, ..Usage::default() };
    streamed(&account, vec![text(40), usage(spent)]).await.whole().await.unwrap();
    assert_eq!(missing(&account).await, 30);
}

/// Our count of an answer is seldom that of a provider.
#[tokio::test(start_paused = true)]
async fn what_a_provider_counts_in_the_end_is_what_it_costs() {
    let spent = Usage { input: 15, output: 5, ..Usage::default() };
    let account = account_of_tokens("mistral").await;
    streamed(&account, vec![text(60), usage(spent)]).await.whole().await.unwrap();
    assert_eq!(missing(&account).await, 20);
    let account = account_of_tokens("mistral").await;
    let mut reply = Reply::default();
    (reply.text, reply.usage) = (words(60), Some(spent));
    assert_eq!(kept(&account, reply).await.whole().await.unwrap().text, words(60));
    assert_eq!(missing(&account).await, 20);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_costs_what_has_come() {
    let account = account_of_tokens("mistral").await;
    streamed(&account, vec![text(10), text(10), cut()]).await.whole().await.unwrap_err();
    assert_eq!(missing(&account).await, with_words(20, 20), "the input, and what has come");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_its_reader_leaves_costs_what_has_come() {
    let account = account_of_tokens("mistral").await;
    let mut answer = streamed(&account, vec![text(10), text(10)]).await;
    answer.next().await.unwrap().unwrap();
    drop(answer);
    assert_eq!(missing(&account).await, with_words(20, 10), "the input, and what has come");
}

/// Anthropic tells at the beginning what the input was, and how much of it was in the cache.
#[tokio::test(start_paused = true)]
async fn what_a_stream_told_of_its_use_counts_also_if_its_reader_leaves() {
    let account = account_of_tokens("anthropic").await;
    let begun = Usage { input: 60, cache_read: 55, output: 1, ..Usage::default() };
    let mut answer = streamed(&account, vec![usage(begun), text(10), text(10)]).await;
    for _ in 0..2 {
        answer.next().await.unwrap().unwrap();
    }
    drop(answer);
    assert_eq!(missing(&account).await, with_words(5, 10), "of the input what was not cached");
}

/// Some servers do not say what a call used.
#[tokio::test(start_paused = true)]
async fn a_whole_answer_without_usage_is_charged_by_its_length() {
    let account = account_of_tokens("mistral").await;
    let mut reply = Reply::default();
    reply.text = words(30);
    let answer = kept(&account, reply).await;
    assert_eq!(missing(&account).await, with_words(20, 30));
    assert_eq!(answer.whole().await.unwrap().text, words(30));
}

/// An answer holds its place to its end, and no longer.
#[tokio::test(start_paused = true)]
async fn a_place_is_held_for_as_long_as_an_answer_comes() {
    let account = account("ollama").build().unwrap();
    let mock = Mock::new("ollama").always(Step::reply("one two three").pause(SECOND));
    let service = limited(&account, &mock);
    let in_flight = || account.gauges(super::MODEL).unwrap().in_flight;
    let mut answer = tower::ServiceExt::oneshot(service.clone(), hello().streamed()).await.unwrap();
    answer.next().await.unwrap().unwrap();
    assert_eq!(in_flight(), 1);
    let waiting = tokio::spawn(async move { call(&service).await.map(drop) });
    tokio::time::sleep(MILLI).await;
    assert!(!waiting.is_finished());
    drop(answer);
    waiting.await.unwrap().unwrap();
    assert_eq!((in_flight(), mock.seen()), (0, 2));
}
