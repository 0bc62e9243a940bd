//! Final cost of responses that are read, interrupted or abandoned.
//!
//! Accounts allow 100 tokens per second; the wait of the next call of 100 shows what is missing.

use std::time::Duration;

use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::rate_limit::Account;
use tidegate_llm::{CallError, CallResponse, ConnectionFailure};
use tidegate_providers::{Event, Provider, Reply, ReportedLimits, Usage, tokens};

use super::{
    SECOND, account, ask, call, hello, limited, reserve, tokens as account_of_tokens, wait,
};

const MILLI: Duration = Duration::from_millis(1);

/// A streamed response of these events, with a reservation of 20 input and 80 output tokens.
async fn streamed(account: &Account, events: Vec<Result<Event, CallError>>) -> CallResponse {
    let provider: Provider = account.provider().clone();
    let mut reservation = reserve(account, &ask(20, 80)).await;
    let mut response =
        CallResponse::streamed(provider, Box::pin(futures_util::stream::iter(events)));
    reservation.response_started(&ReportedLimits::new());
    response.keep(reservation);
    response
}

/// A complete response with the same reservation.
async fn kept(account: &Account, reply: Reply) -> CallResponse {
    let mut reservation = reserve(account, &ask(20, 80)).await;
    let mut response = CallResponse::complete(account.provider().clone(), reply);
    reservation.response_started(&ReportedLimits::new());
    response.keep(reservation);
    response
}

fn words(words: usize) -> String {
    " tide".repeat(words)
}

fn text(count: usize) -> Result<Event, CallError> {
    Ok(Event::Text(words(count)))
}

/// Tokens of `count` words plus `others`.
fn with_words(others: u64, count: usize) -> u128 {
    u128::from(others + tokens::count(&words(count)))
}

fn usage(usage: Usage) -> Result<Event, CallError> {
    Ok(Event::Usage(usage))
}

fn cut() -> Result<Event, CallError> {
    let provider = "mistral".into();
    Err(CallError::Connection { provider, kind: ConnectionFailure::Closed, source: None })
}

/// Returns how many of 100 tokens are missing for the next call.
async fn missing(account: &Account) -> u128 {
    (wait(account, &ask(0, 100)).await / 10).as_millis()
}

#[tokio::test(start_paused = true)]
async fn complete_stream_costs_what_it_used() {
    let account = account_of_tokens("mistral").await;
    let spent = Usage { input: 15, output: 15, ..Usage::default() };
    streamed(&account, vec![text(40), usage(spent)]).await.into_reply().await.unwrap();
    assert_eq!(missing(&account).await, 30);
}

/// Our token count rarely equals the provider's.
#[tokio::test(start_paused = true)]
async fn final_count_of_the_provider_determines_the_cost() {
    let spent = Usage { input: 15, output: 5, ..Usage::default() };
    let account = account_of_tokens("mistral").await;
    streamed(&account, vec![text(60), usage(spent)]).await.into_reply().await.unwrap();
    assert_eq!(missing(&account).await, 20);
    let account = account_of_tokens("mistral").await;
    let mut reply = Reply::default();
    (reply.text, reply.usage) = (words(60), Some(spent));
    assert_eq!(kept(&account, reply).await.into_reply().await.unwrap().text, words(60));
    assert_eq!(missing(&account).await, 20);
}

#[tokio::test(start_paused = true)]
async fn interrupted_stream_costs_what_was_received() {
    let account = account_of_tokens("mistral").await;
    streamed(&account, vec![text(10), text(10), cut()]).await.into_reply().await.unwrap_err();
    assert_eq!(missing(&account).await, with_words(20, 20), "input plus received output");
}

#[tokio::test(start_paused = true)]
async fn abandoned_stream_costs_what_was_received() {
    let account = account_of_tokens("mistral").await;
    let mut response = streamed(&account, vec![text(10), text(10)]).await;
    response.next().await.unwrap().unwrap();
    drop(response);
    assert_eq!(missing(&account).await, with_words(20, 10), "input plus received output");
}

/// Anthropic reports at the start how large the input was and how much of it was cached.
#[tokio::test(start_paused = true)]
async fn usage_reported_by_an_abandoned_stream_counts() {
    let account = account_of_tokens("anthropic").await;
    let begun = Usage { input: 60, cache_read: 55, output: 1, ..Usage::default() };
    let mut response = streamed(&account, vec![usage(begun), text(10), text(10)]).await;
    for _ in 0..2 {
        response.next().await.unwrap().unwrap();
    }
    drop(response);
    assert_eq!(missing(&account).await, with_words(5, 10), "only uncached input");
}

/// Some servers do not report usage.
#[tokio::test(start_paused = true)]
async fn response_without_usage_is_charged_by_its_length() {
    let account = account_of_tokens("mistral").await;
    let mut reply = Reply::default();
    reply.text = words(30);
    let response = kept(&account, reply).await;
    assert_eq!(missing(&account).await, with_words(20, 30));
    assert_eq!(response.into_reply().await.unwrap().text, words(30));
}

/// A response holds its slot until its end.
#[tokio::test(start_paused = true)]
async fn slot_is_held_until_the_response_ends() {
    let account = account("ollama").build().unwrap();
    let mock = Mock::new("ollama").always(Step::reply("one two three").pause(SECOND));
    let service = limited(&account, &mock);
    let in_flight = || account.gauges(super::MODEL).unwrap().in_flight;
    let mut response =
        tower::ServiceExt::oneshot(service.clone(), hello().streamed()).await.unwrap();
    response.next().await.unwrap().unwrap();
    assert_eq!(in_flight(), 1);
    let waiting = tokio::spawn(async move { call(&service).await.map(drop) });
    tokio::time::sleep(MILLI).await;
    assert!(!waiting.is_finished());
    drop(response);
    waiting.await.unwrap().unwrap();
    assert_eq!((in_flight(), mock.call_count()), (0, 2));
}
