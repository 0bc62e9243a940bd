//! Reservations of an account: charges, refunds, holds and reopening.

mod concurrency;
mod holds;
mod inspection;
mod learning;
mod limits;
mod response_ends;
mod settlement;
mod waiting;

use std::time::Duration;

use futures_util::future::join_all;
use tidegate_llm::mock::Mock;
use tidegate_llm::plan::{Constraint, ConstraintSource, RawConstraint};
use tidegate_llm::rate_limit::{
    Account, AccountBuilder, OutputCharge, RateLimit, RateLimitLayer, Reservation, TokenAccounting,
};
use tidegate_llm::{Call, CallError, CallOptions, CallResponse, OutgoingCall};
use tidegate_providers::{
    Chat, Credential, Dialect, Dimension, LimitReading, ReportedLimits, Usage,
};
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const MODEL: &str = "model-1";

/// A call with explicit token counts.
#[derive(Clone, Debug, Default)]
struct TestCall {
    options: CallOptions,
    input: u64,
    is_input_estimated: bool,
    output: Option<u64>,
}

impl OutgoingCall for TestCall {
    fn options(&self) -> &CallOptions {
        &self.options
    }

    fn options_mut(&mut self) -> &mut CallOptions {
        &mut self.options
    }

    fn input_tokens(&self) -> u64 {
        self.input
    }

    fn has_estimated_input(&self) -> bool {
        self.is_input_estimated
    }

    fn max_output(&self) -> Option<u64> {
        self.output
    }
}

/// Creates a call with `input` tokens and at most `output` output tokens.
fn ask(input: u64, output: u64) -> TestCall {
    TestCall { input, output: Some(output), ..TestCall::default() }
}

fn account(provider: &str) -> AccountBuilder {
    // The same counts in every run.
    tidegate_providers::tokens::prepare();
    Account::builder(provider, &Credential::none())
}

fn constraint(raw: &RawConstraint) -> Constraint {
    Constraint::try_new(raw).unwrap()
}

/// Builder for an account with exactly this request rate and burst.
fn requests(provider: &str, requests_per_minute: i64, burst: i64) -> AccountBuilder {
    let raw = RawConstraint {
        requests_per_minute: Some(requests_per_minute),
        burst_capacity: Some(burst),
        ..RawConstraint::default()
    };
    account(provider).limits(constraint(&raw), ConstraintSource::Override).without_margin()
}

/// Account with 100 tokens per second and 100 left. `max_tokens` are reserved, and refunded or not
/// as the provider does.
async fn tokens(provider: &str) -> Account {
    let raw = RawConstraint { tokens_per_minute: Some(6_000), ..RawConstraint::default() };
    let accounting = TokenAccounting::of(Dialect::of(&provider.into()));
    let output = if provider == "openai" {
        OutputCharge::MaxTokens
    } else {
        OutputCharge::MaxTokensRefunded
    };
    let builder = account(provider).limits(constraint(&raw), ConstraintSource::Override);
    let account = builder.accounting(accounting.output(output)).without_margin().build().unwrap();
    // Drain the bucket, which holds a minute's worth.
    let (most, used) = (ask(0, 5_900), Usage { output: 5_900, ..Usage::default() });
    reserve(&account, &most).await.complete(Some(used));
    account
}

/// Reported limits with one limit per minute.
fn reported(dimension: Dimension, limit: u64, remaining: u64) -> ReportedLimits {
    let mut reported = ReportedLimits::new();
    add_limit(&mut reported, dimension, limit, remaining);
    reported
}

fn add_limit(reported: &mut ReportedLimits, dimension: Dimension, limit: u64, remaining: u64) {
    let (limit, remaining) = (Some(limit), Some(remaining));
    reported.add(dimension, LimitReading { limit, remaining, reset: None, window: MINUTE });
}

async fn reserve(account: &Account, call: &TestCall) -> Reservation {
    account.reserve(MODEL, call).await.unwrap()
}

/// Returns how long a call waits; it ends as soon as it is sent.
async fn wait(account: &Account, call: &TestCall) -> Duration {
    let reservation = reserve(account, call).await;
    let waited = reservation.waited();
    reservation.complete(None);
    waited
}

/// Wraps a mock in the limits of an account.
fn limited(account: &Account, mock: &Mock) -> RateLimit<Mock> {
    RateLimitLayer::new(account.clone(), MODEL).layer(mock.clone())
}

async fn call(service: &RateLimit<Mock>) -> Result<CallResponse, CallError> {
    service.clone().oneshot(hello()).await
}

fn hello() -> Call {
    Call::new(Chat::user("hello"))
}

/// Sends `count` calls at once and returns the time of each response.
async fn response_times(service: &RateLimit<Mock>, count: usize) -> Vec<Duration> {
    let start = Instant::now();
    let calls = (0..count).map(|_| async move {
        let _ = call(service).await.unwrap();
        start.elapsed()
    });
    let mut times = join_all(calls).await;
    times.sort_unstable();
    times
}

/// Shortest time between two consecutive calls.
fn shortest_gap(times: &[Duration]) -> Duration {
    times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap()
}
