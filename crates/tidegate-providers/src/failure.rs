//! Error responses of providers.
//!
//! Structured fields determine the class. The message is used only for a delay and the value of a
//! limit, where a provider has no field for them. A delay is taken from the headers first, then
//! from the fields of the body, then from the message. If the body is too long or not JSON, the
//! status decides.

mod body;
mod class;
mod error;
mod google;
mod text;

use std::time::Duration;

use http::response::Parts;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tidegate_core::WallTime;

pub use class::Class;
pub use error::Failure;

use body::Fields;

use crate::classify::{self, ClassificationRules, Evidence};
use crate::dialect::Dialect;
use crate::provider::Provider;
use crate::reported_limits::{Dimension, LimitReading, ReportedLimits, delay, headers};

/// Maximum size of a body that is parsed as JSON, in bytes. Errors of providers are a few hundred
/// bytes.
const MAX_BODY: usize = 256 * 1024;
/// Maximum size of a message that is kept, in bytes.
const MAX_MESSAGE: usize = 2 * 1024;
/// Headers in which providers send the request id.
const REQUEST_IDS: [&str; 4] =
    ["x-request-id", "request-id", "apim-request-id", "x-goog-request-id"];

impl Failure {
    /// Classifies a response with an error status. `now` is used if the response has no `date`
    /// header.
    ///
    /// ```
    /// use http::Response;
    /// use tidegate_core::WallTime;
    /// use tidegate_providers::classify::ClassificationRules;
    /// use tidegate_providers::{Class, Dialect, Failure, Provider};
    ///
    /// let body = br#"{"error":{"type":"insufficient_quota","message":"Nothing is left."}}"#;
    /// let response = Response::builder().status(429).header("x-request-id", "req_1").body(())?;
    /// let (parts, ()) = response.into_parts();
    /// let (openai, now) = (Provider::new("openai"), WallTime::from_secs(1_800_000_000));
    /// let rules = ClassificationRules::new();
    /// let failure = Failure::of_response(Dialect::OpenAi, &openai, &parts, body, &rules, now);
    /// assert_eq!(failure.class, Class::ExhaustedQuota { after: None });
    /// assert_eq!(failure.to_string(), "openai answered 429 insufficient_quota (request id req_1)");
    /// # Ok::<(), http::Error>(())
    /// ```
    #[must_use]
    pub fn of_response(
        dialect: Dialect,
        provider: &Provider,
        parts: &Parts,
        body: &[u8],
        rules: &ClassificationRules,
        now: WallTime,
    ) -> Self {
        let now = delay::sent_at(&parts.headers, now);
        let origin = Origin { dialect, provider, status: parts.status, now };
        let json = if body.len() <= MAX_BODY { serde_json::from_slice(body).ok() } else { None };
        let reported = headers::read_at(dialect, &parts.headers, now);
        let after = headers::retry_after(&parts.headers, now);
        let fields = json.as_ref().map(Fields::read).unwrap_or_default();
        let mut failure = origin.failure(&fields, reported, after, rules);
        if json.is_none() {
            failure.message = plain(body);
        }
        failure.request_id = request_id(&parts.headers).or(failure.request_id);
        failure
    }

    /// Classifies an error inside a stream, or in the body of a response with status 200.
    #[must_use]
    pub fn in_stream(
        dialect: Dialect,
        provider: &Provider,
        body: &Value,
        rules: &ClassificationRules,
        now: WallTime,
    ) -> Self {
        let origin = Origin { dialect, provider, status: StatusCode::OK, now };
        origin.failure(&Fields::read(body), ReportedLimits::new(), None, rules)
    }
}

/// Returns the provider's id of a request from the headers of its response.
#[must_use]
pub fn request_id(headers: &HeaderMap) -> Option<String> {
    REQUEST_IDS.iter().find_map(|name| headers.get(*name)?.to_str().ok().and_then(body::name))
}

/// Where and when an error occurred.
struct Origin<'a> {
    dialect: Dialect,
    provider: &'a Provider,
    /// Status of the response.
    status: StatusCode,
    now: WallTime,
}

impl Origin<'_> {
    fn failure(
        &self,
        fields: &Fields<'_>,
        mut reported: ReportedLimits,
        after: Option<Duration>,
        rules: &ClassificationRules,
    ) -> Failure {
        let message = fields.message.map(|message| truncated(message, MAX_MESSAGE));
        let limit_text = message.filter(|_| self.has_limits_in_message());
        self.read_limits(fields, &mut reported);
        let dimension = dimension(fields, &reported);
        // Only after `dimension` is determined: the message must not affect the class.
        if let Some((of, reading)) = limit_text.and_then(text::limit) {
            reported.add(of, reading);
        }
        let delay = after.or_else(|| self.delay(fields, limit_text, &reported));
        let evidence = Evidence {
            dialect: self.dialect,
            provider: self.provider,
            status: if self.status.is_success() { fields.status } else { Some(self.status) },
            names: &fields.names,
            quota: fields.google.quota(),
            delay,
            dimension,
            now: self.now,
        };
        let (class, is_final) = classify::class(&evidence, rules);
        // Ignore a delay that comes with an error that waiting does not resolve.
        let after = class.after().or(delay.filter(|_| class.is_retryable()));
        Failure {
            kind: fields.names.first().cloned(),
            message: message.map(str::to_owned),
            request_id: fields.request_id.and_then(body::name),
            reported_limits: reported,
            after,
            // An error in a stream has no status of its own, so its class decides.
            is_final: is_final && !self.status.is_success(),
            ..Failure::new(self.provider.clone(), class, self.status)
        }
    }

    /// Adds the limits that the body reports. Limits from headers take precedence.
    fn read_limits(&self, fields: &Fields<'_>, reported: &mut ReportedLimits) {
        let repeated = headers::read_fields(self.dialect, |name| fields.header(name), self.now);
        let repeated = repeated.iter().map(|(dimension, reading)| (dimension, *reading));
        for (dimension, reading) in repeated.chain(fields.google.readings()) {
            reported.add(dimension, reading);
        }
    }

    fn delay(
        &self,
        fields: &Fields<'_>,
        limit_text: Option<&str>,
        reported: &ReportedLimits,
    ) -> Option<Duration> {
        let structured = fields.delay.and_then(|delay| delay::read(delay, self.now));
        let structured = structured.or_else(|| match self.dialect {
            // Its windows are fixed: the whole limit is available again at the reset.
            Dialect::OpenRouter => {
                reported.iter().find(|(_, reading)| is_exhausted(reading))?.1.reset
            }
            _ => None,
        });
        structured.or_else(|| text::delay(limit_text?))
    }

    /// Returns whether the provider puts delays and limits into its error messages.
    const fn has_limits_in_message(&self) -> bool {
        matches!(
            self.dialect,
            Dialect::OpenAi
                | Dialect::Azure
                | Dialect::Gemini
                | Dialect::Groq
                | Dialect::Compatible
        )
    }
}

/// Returns the limit that was exceeded: the one that the error type names, or the only exhausted
/// one.
fn dimension(fields: &Fields<'_>, reported: &ReportedLimits) -> Option<Dimension> {
    let mut exhausted = reported.iter().filter(|(_, reading)| is_exhausted(reading));
    let exhausted = exhausted.next().filter(|_| exhausted.next().is_none()).map(|(of, _)| of);
    let named = fields.names.iter().find_map(|name| match name.as_str() {
        // Used for requests per minute and per day.
        "requests" if exhausted == Some(Dimension::RequestsPerDay) => exhausted,
        "requests" => Some(Dimension::Requests),
        "tokens" => Some(Dimension::Tokens),
        _ => None,
    });
    named.or(exhausted)
}

fn is_exhausted(reading: &LimitReading) -> bool {
    reading.remaining == Some(0)
}

/// Returns the start of a body that is not JSON.
fn plain(body: &[u8]) -> Option<String> {
    let start = body.get(..MAX_MESSAGE).unwrap_or(body);
    let text = String::from_utf8_lossy(start);
    let text = truncated(text.trim(), MAX_MESSAGE);
    (!text.is_empty()).then(|| text.to_owned())
}

/// Truncates a text to at most `bytes` bytes, at a character boundary.
fn truncated(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_truncated_between_characters() {
        assert_eq!(truncated("short", 10), "short");
        assert_eq!(truncated("aé", 2), "a");
        assert_eq!(truncated("aé", 3), "aé");
        assert_eq!(truncated("é", 0), "");
    }

    #[test]
    fn html_page_of_a_proxy_is_truncated() {
        let page = "<html>é".repeat(2_000);
        let kept = plain(page.as_bytes()).unwrap();
        assert!(kept.starts_with("<html>") && kept.len() <= MAX_MESSAGE);
        assert_eq!(plain(b" \n"), None);
        assert!(plain(&[0xff; 4_000]).unwrap().len() <= MAX_MESSAGE);
    }
}
