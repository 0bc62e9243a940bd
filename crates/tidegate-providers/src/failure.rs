//! Errors of providers, read from their bodies.
//!
//! The structured fields make the class; the text gives nothing but a delay and the number of a
//! limit, where a provider has no field for them. A delay is looked for in the header fields first,
//! then in the fields of the body, then in the text. A body that is too long or no JSON at all is no
//! error of ours: then the status decides.

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

use crate::classify::{self, Evidence, Rules};
use crate::dialect::Dialect;
use crate::provider::Provider;
use crate::reported_limits::{Dimension, Reading, ReportedLimits, delay, headers};

/// The longest body that is read as JSON. Errors of providers are a few hundred bytes.
const MAX_BODY: usize = 256 * 1024;
/// How much of a message is kept, in bytes.
const MAX_MESSAGE: usize = 2 * 1024;
/// Where providers put what they call a request.
const REQUEST_IDS: [&str; 4] =
    ["x-request-id", "request-id", "apim-request-id", "x-goog-request-id"];

impl Failure {
    /// The failure that an answer with an error status is. `now` counts where the answer has no
    /// `date` of its own.
    ///
    /// ```
    /// use http::Response;
    /// use tidegate_core::WallTime;
    /// use tidegate_providers::classify::Rules;
    /// use tidegate_providers::{Class, Dialect, Failure, Provider};
    ///
    /// let body = br#"{"error":{"type":"insufficient_quota","message":"Nothing is left."}}"#;
    /// let answer = Response::builder().status(429).header("x-request-id", "req_1").body(())?;
    /// let (parts, ()) = answer.into_parts();
    /// let (openai, now) = (Provider::new("openai"), WallTime::from_secs(1_800_000_000));
    /// let failure =
    ///     Failure::of_response(Dialect::OpenAi, &openai, &parts, body, &Rules::new(), now);
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
        rules: &Rules,
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

    /// The failure that an error in a stream is, or in a whole answer whose status is 200.
    #[must_use]
    pub fn in_stream(
        dialect: Dialect,
        provider: &Provider,
        body: &Value,
        rules: &Rules,
        now: WallTime,
    ) -> Self {
        let origin = Origin { dialect, provider, status: StatusCode::OK, now };
        origin.failure(&Fields::read(body), ReportedLimits::nothing(), None, rules)
    }
}

/// What the provider calls a request, as the head of its answer has it.
#[must_use]
pub fn request_id(headers: &HeaderMap) -> Option<String> {
    REQUEST_IDS.iter().find_map(|name| headers.get(*name)?.to_str().ok().and_then(body::name))
}

/// Where an error comes from, and when.
struct Origin<'a> {
    dialect: Dialect,
    provider: &'a Provider,
    /// Of the answer.
    status: StatusCode,
    now: WallTime,
}

impl Origin<'_> {
    fn failure(
        &self,
        fields: &Fields<'_>,
        mut reported: ReportedLimits,
        after: Option<Duration>,
        rules: &Rules,
    ) -> Failure {
        let message = fields.message.map(|message| capped(message, MAX_MESSAGE));
        let words = message.filter(|_| self.tells_in_words());
        self.read_limits(fields, &mut reported);
        let dimension = dimension(fields, &reported);
        // Words come after the dimension, since that is a part of the class.
        if let Some((of, reading)) = words.and_then(text::limit) {
            reported.add(of, reading);
        }
        let delay = after.or_else(|| self.delay(fields, words, &reported));
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
        // A delay that comes with what no delay helps against is not to be followed.
        let after = class.after().or(delay.filter(|_| class.is_retryable()));
        Failure {
            kind: fields.names.first().cloned(),
            message: message.map(str::to_owned),
            request_id: fields.request_id.and_then(body::name),
            reported_limits: reported,
            after,
            // An error in a stream has no status of its own: its class decides.
            is_final: is_final && !self.status.is_success(),
            ..Failure::new(self.provider.clone(), class, self.status)
        }
    }

    /// Adds what the fields of the body tell about limits; what the header reported stays.
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
        words: Option<&str>,
        reported: &ReportedLimits,
    ) -> Option<Duration> {
        let structured = fields.delay.and_then(|delay| delay::read(delay, self.now));
        let structured = structured.or_else(|| match self.dialect {
            // Its windows are fixed, so that what resets is what can be used.
            Dialect::OpenRouter => {
                reported.iter().find(|(_, reading)| is_used_up(reading))?.1.reset
            }
            _ => None,
        });
        structured.or_else(|| text::delay(words?))
    }

    /// Whether the provider writes delays and limits into its messages.
    const fn tells_in_words(&self) -> bool {
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

/// Which limit it was: the one that the type names, or the only one that is used up.
fn dimension(fields: &Fields<'_>, reported: &ReportedLimits) -> Option<Dimension> {
    let mut used_up = reported.iter().filter(|(_, reading)| is_used_up(reading));
    let used_up = used_up.next().filter(|_| used_up.next().is_none()).map(|(of, _)| of);
    let named = fields.names.iter().find_map(|name| match name.as_str() {
        // Both of a minute and of a day go by this name.
        "requests" if used_up == Some(Dimension::RequestsPerDay) => used_up,
        "requests" => Some(Dimension::Requests),
        "tokens" => Some(Dimension::Tokens),
        _ => None,
    });
    named.or(used_up)
}

fn is_used_up(reading: &Reading) -> bool {
    reading.remaining == Some(0)
}

/// A body that is no JSON, as far as it is kept.
fn plain(body: &[u8]) -> Option<String> {
    let start = body.get(..MAX_MESSAGE).unwrap_or(body);
    let text = String::from_utf8_lossy(start);
    let text = capped(text.trim(), MAX_MESSAGE);
    (!text.is_empty()).then(|| text.to_owned())
}

/// The start of a text, up to so many bytes.
fn capped(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(capped("short", 10), "short");
        assert_eq!(capped("aé", 2), "a");
        assert_eq!(capped("aé", 3), "aé");
        assert_eq!(capped("é", 0), "");
    }

    #[test]
    fn a_page_of_a_proxy_is_kept_in_part() {
        let page = "<html>é".repeat(2_000);
        let kept = plain(page.as_bytes()).unwrap();
        assert!(kept.starts_with("<html>") && kept.len() <= MAX_MESSAGE);
        assert_eq!(plain(b" \n"), None);
        assert!(plain(&[0xff; 4_000]).unwrap().len() <= MAX_MESSAGE);
    }
}
