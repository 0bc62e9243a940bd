//! The overhead of a call without the network: services that answer immediately, with and without
//! limits.
//!
//! Limits are configured and reported, but so high that no call waits; a call that would wait fails
//! the benchmark. Input tokens are counted before the measurement: all attempts of a call share
//! that count.

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use indicatif::ProgressBar;
use tidegate_llm::adapter::Adapter;
use tidegate_llm::plan::{Constraint, ConstraintSource, RawConstraint};
use tidegate_llm::rate_limit::{Account, RateLimitLayer};
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::{Call, CallError, CallResponse};
use tidegate_providers::request::Target;
use tidegate_providers::{
    Chat, Credential, Dialect, Dimension, LimitReading, Reply, ReportedLimits, Usage,
};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, ServiceExt as _, service_fn};

use super::role::Model;
use super::scenario::{KEY, MODEL};
use crate::contender::{Contender, repeat};
use crate::measure::{Effort, Figure, measure_shared};

/// Requests and tokens per minute, never reached.
const PLENTY: u32 = 4_000_000_000;
/// The remaining amount that responses report.
const LEFT: u32 = PLENTY - 1_000;
const RESET: Duration = Duration::from_millis(1);
const BODY: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Elbe"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#;

/// The measured part of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A service that answers immediately.
    Bare,
    /// With a permit per call: acquired, and settled with the actual usage.
    Limited,
    /// With a permit per call, and responses that report limits.
    WithReportedLimits,
    /// With permits, reported limits and the retry layer; no call fails.
    Retried,
    /// An adapter over HTTP that answers immediately.
    Adapter,
    /// All layers over such an adapter.
    Stack,
}

impl Part {
    pub(super) const ALL: [Self; 6] = [
        Self::Bare,
        Self::Limited,
        Self::WithReportedLimits,
        Self::Retried,
        Self::Adapter,
        Self::Stack,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "a service that answers at once",
            Self::Limited => "`RateLimit(service)`: acquire, settle",
            Self::WithReportedLimits => "the same, limits told by every answer",
            Self::Retried => "`Retry(RateLimit(service))`, limits told",
            Self::Adapter => "`adapter`: encode, read fields and body",
            Self::Stack => "`Retry(RateLimit(adapter))`",
        }
    }

    /// The part with which this one is compared.
    pub(super) const fn base(self) -> Self {
        match self {
            Self::Bare | Self::Limited | Self::WithReportedLimits | Self::Retried => Self::Bare,
            Self::Adapter | Self::Stack => Self::Adapter,
        }
    }

    fn enter(self) -> Result<Box<dyn Contender>> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let model = match self {
            Self::Bare => instant(reported_limits()).boxed_clone(),
            Self::Limited => limited(instant(ReportedLimits::new()))?.boxed_clone(),
            Self::WithReportedLimits => limited(instant(reported_limits()))?.boxed_clone(),
            Self::Retried => retried(limited(instant(reported_limits()))?).boxed_clone(),
            Self::Adapter => adapter()?.boxed_clone(),
            Self::Stack => retried(limited(adapter()?)?).boxed_clone(),
        };
        let chat = Chat::user("Name a river.").max_tokens(8);
        let call = Call::new(chat).max_wait(Duration::ZERO);
        Ok(Box::new(Caller { runtime, model: Mutex::new(model), call }))
    }
}

/// Nanoseconds per call, in the order of [`Part::ALL`].
pub(super) fn measure(effort: Effort, progress: &ProgressBar) -> Result<Vec<Figure>> {
    progress.set_message("what a call costs");
    let parts = Part::ALL.map(Part::enter).into_iter().collect::<Result<Vec<_>>>()?;
    measure_shared(&parts, &[Vec::new()], effort, progress)
}

struct Caller {
    runtime: Runtime,
    model: Mutex<Model>,
    call: Call,
}

impl Contender for Caller {
    fn decide(&self, _keys: &[String], requests: u64) -> u64 {
        let model = self.model.lock().unwrap_or_else(PoisonError::into_inner).clone();
        repeat(&self.runtime, requests, async || {
            let answer = model.clone().oneshot(self.call.clone()).await;
            match answer {
                Ok(answer) => answer.into_reply().await.is_ok(),
                Err(_) => false,
            }
        })
    }
}

/// A service that answers at once.
fn instant(
    reported: ReportedLimits,
) -> impl Service<Call, Response = CallResponse, Error = CallError, Future: Send> + Clone + Send + 'static
{
    service_fn(move |_: Call| {
        let mut reply = Reply::default();
        reply.text.push_str("Elbe");
        reply.usage = Some(Usage { input: 9, output: 2, ..Usage::default() });
        let answer =
            CallResponse::complete("openai".into(), reply).with_head(reported.clone(), None);
        ready(Ok::<_, CallError>(answer))
    })
}

/// The limits that responses report.
fn reported_limits() -> ReportedLimits {
    let reading = LimitReading {
        limit: Some(PLENTY.into()),
        remaining: Some(LEFT.into()),
        reset: Some(RESET),
        window: Duration::from_secs(60),
    };
    let mut reported = ReportedLimits::new();
    reported.add(Dimension::Requests, reading);
    reported.add(Dimension::Tokens, reading);
    reported
}

fn adapter() -> Result<
    impl Service<Call, Response = CallResponse, Error = CallError, Future: Send>
    + Clone
    + Send
    + 'static,
> {
    let http = service_fn(|_: Request<Full<Bytes>>| {
        let mut response = Response::new(Full::new(Bytes::from_static(BODY.as_bytes())));
        let fields = response.headers_mut();
        for (limit, left, reset) in [
            (
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests",
            ),
            (
                "x-ratelimit-limit-tokens",
                "x-ratelimit-remaining-tokens",
                "x-ratelimit-reset-tokens",
            ),
        ] {
            fields.insert(limit, PLENTY.into());
            fields.insert(left, LEFT.into());
            fields.insert(reset, http::HeaderValue::from_static("1ms"));
        }
        ready(Ok::<_, Infallible>(response))
    });
    let target = Target::new(Dialect::OpenAi, "http://sim", MODEL, &Credential::new(KEY))?;
    Ok(Adapter::new(http, "openai", target))
}

fn limited<S>(service: S) -> Result<<RateLimitLayer as Layer<S>>::Service> {
    let raw = RawConstraint {
        requests_per_minute: Some(PLENTY.into()),
        tokens_per_minute: Some(PLENTY.into()),
        ..RawConstraint::default()
    };
    let account = Account::builder("openai", &Credential::new(KEY))
        .limits(Constraint::try_new(&raw)?, ConstraintSource::Override);
    Ok(RateLimitLayer::new(account.build()?, MODEL).layer(service))
}

fn retried<S>(service: S) -> <RetryLayer as Layer<S>>::Service {
    RetryLayer::new("openai").layer(service)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_answers_every_call_at_once() {
        for part in Part::ALL {
            let calls = part.enter().unwrap().decide(&[], 1_000);
            assert_eq!(calls, 1_000, "{}", part.name());
        }
    }
}
