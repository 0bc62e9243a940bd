//! Errors of the gateway itself, in the format of the provider.
//!
//! SDKs choose an exception by the status and by names in the body, so both follow the provider's
//! API. Messages name Tidegate and never quote a request.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use tidegate_http::field::{RETRY_AFTER_MS, RetryAfter};
use tidegate_http::problem::{Problem, ProblemType};
use tidegate_providers::Dialect;

use crate::request::method;
use crate::response::body::ResponseBody;

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The wait for requests, or for a slot, would be too long.
    RateLimit,
    /// The wait for tokens would be too long.
    TokenLimit,
    /// A long-term quota is exhausted.
    Quota,
    /// The gateway is draining.
    Draining,
    /// The body is too large.
    TooLarge,
    /// The caller sent the body too slowly.
    TooSlow,
    /// The request is invalid.
    Invalid,
    /// The provider cannot be reached.
    Unreachable,
    /// The provider did not respond in time.
    Timeout,
    /// The circuit breaker of the provider is open.
    BreakerOpen,
    /// The buffer budget is exhausted.
    Busy,
    /// The request asks for a protocol upgrade.
    Upgrade,
    /// The method is not forwarded.
    Method,
    /// Internal error of the gateway.
    Internal,
}

/// An error of the gateway itself.
#[derive(Clone, Debug)]
pub(crate) struct ProxyError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
    /// The provider's status, which replaces the default status of the kind.
    status: Option<StatusCode>,
}

impl ErrorKind {
    /// Returns the error kind for a limit by its name.
    pub(crate) fn of_limit(limit: Option<&str>) -> Self {
        match limit {
            Some(name) if name.ends_with("tokens") => Self::TokenLimit,
            _ => Self::RateLimit,
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::RateLimit | Self::TokenLimit | Self::Quota => StatusCode::TOO_MANY_REQUESTS,
            Self::Draining | Self::Busy | Self::BreakerOpen => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::Unreachable => StatusCode::BAD_GATEWAY,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Upgrade => StatusCode::UPGRADE_REQUIRED,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns OpenAI's error type and code.
    const fn openai(self) -> (&'static str, &'static str) {
        match self {
            Self::RateLimit => ("requests", "rate_limit_exceeded"),
            Self::TokenLimit => ("tokens", "rate_limit_exceeded"),
            Self::Quota => ("insufficient_quota", "insufficient_quota"),
            Self::TooLarge => ("invalid_request_error", "request_too_large"),
            Self::TooSlow => ("invalid_request_error", "request_timeout"),
            Self::Invalid => ("invalid_request_error", "invalid_request"),
            Self::Draining => ("server_error", "gateway_draining"),
            Self::Busy => ("server_error", "gateway_busy"),
            Self::Upgrade => ("invalid_request_error", "upgrade_not_supported"),
            Self::Method => ("invalid_request_error", "method_not_allowed"),
            Self::Unreachable => ("server_error", "provider_unreachable"),
            Self::Timeout => ("server_error", "provider_timeout"),
            Self::BreakerOpen => ("server_error", "provider_unavailable"),
            Self::Internal => ("server_error", "internal_error"),
        }
    }

    const fn anthropic(self) -> &'static str {
        match self {
            Self::RateLimit | Self::TokenLimit | Self::Quota => "rate_limit_error",
            Self::TooLarge => "request_too_large",
            Self::TooSlow | Self::Invalid | Self::Upgrade | Self::Method => "invalid_request_error",
            Self::Busy => "overloaded_error",
            Self::Timeout => "timeout_error",
            Self::Draining | Self::Unreachable | Self::BreakerOpen | Self::Internal => "api_error",
        }
    }

    const fn google(self) -> &'static str {
        match self {
            Self::RateLimit | Self::TokenLimit | Self::Quota => "RESOURCE_EXHAUSTED",
            Self::TooLarge | Self::Invalid => "INVALID_ARGUMENT",
            Self::Draining | Self::Unreachable | Self::Busy | Self::BreakerOpen => "UNAVAILABLE",
            Self::Upgrade | Self::Method => "UNIMPLEMENTED",
            Self::TooSlow | Self::Timeout => "DEADLINE_EXCEEDED",
            Self::Internal => "INTERNAL",
        }
    }
}

impl ProxyError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, status: None }
    }

    pub(crate) const fn retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Uses the provider's status if it is an error status.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        let is_error = status.is_client_error() || status.is_server_error();
        self.status = Some(status).filter(|_| is_error);
        self
    }

    /// Returns the response in the format of a dialect.
    pub(crate) fn response(&self, dialect: Dialect) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody::buffered(self.body_bytes(dialect)));
        *response.status_mut() = self.status.unwrap_or(self.kind.status());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        match self.kind {
            ErrorKind::Method => {
                headers.insert(ALLOW, HeaderValue::from_static(method::ALLOWED));
            }
            ErrorKind::Upgrade => {
                headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
                headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            }
            _ => {}
        }
        if let Some(after) = self.retry_after {
            RetryAfter::from(after).write(headers);
        }
        response
    }

    /// Returns the body in the format of a dialect.
    pub(crate) fn body_bytes(&self, dialect: Dialect) -> Bytes {
        self.body(dialect).to_string().into()
    }

    fn body(&self, dialect: Dialect) -> Value {
        let (kind, message) = (self.kind, &self.message);
        match dialect.family() {
            Dialect::Anthropic => {
                let error_type = self.status.and_then(anthropic_type).unwrap_or(kind.anthropic());
                json!({ "type": "error", "error": { "type": error_type, "message": message } })
            }
            Dialect::Gemini => {
                let mut error = json!({
                    "code": self.status.unwrap_or(kind.status()).as_u16(),
                    "status": self.status.and_then(google_status).unwrap_or(kind.google()),
                    "message": message,
                });
                if let Some(after) = self.retry_after {
                    let delay = Duration::from_millis(RetryAfter::from(after).millis());
                    let delay = format!("{:.3}s", delay.as_secs_f64());
                    error["details"] = json!([{
                        "@type": "type.googleapis.com/google.rpc.RetryInfo",
                        "retryDelay": delay,
                    }]);
                }
                json!({ "error": error })
            }
            Dialect::Ollama => json!({ "error": message }),
            _ => {
                let (error_type, code) = kind.openai();
                let error =
                    json!({ "message": message, "type": error_type, "param": null, "code": code });
                json!({ "error": error })
            }
        }
    }
}

/// Returns Anthropic's error type for a status.
fn anthropic_type(status: StatusCode) -> Option<&'static str> {
    Some(match status.as_u16() {
        400 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => return None,
    })
}

/// Returns Google's status name for an HTTP status.
fn google_status(status: StatusCode) -> Option<&'static str> {
    Some(match status.as_u16() {
        400 => "FAILED_PRECONDITION",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => return None,
    })
}

/// Sets `retry-after` and `retry-after-ms` unless the provider sent a longer time.
pub(crate) fn extend_retry_after(headers: &mut HeaderMap, after: Duration) {
    let number = |name: &HeaderName| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let sent = number(&RETRY_AFTER_MS).or_else(|| Some(number(&RETRY_AFTER)? * 1_000.0));
    if sent.is_none_or(|sent| sent < after.as_secs_f64() * 1_000.0) {
        RetryAfter::from(after).write(headers);
    }
}

/// Tells SDKs not to retry: the request is invalid, or the gateway has already retried.
pub(crate) fn set_no_retry(headers: &mut HeaderMap) {
    headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
}

/// Returns the response to a path that names no configured provider.
pub(crate) fn unknown_provider(known: &[&str]) -> Response<ResponseBody> {
    let detail = match known {
        [] => "no provider is configured".to_owned(),
        known => format!(
            "no provider of this name is configured; known providers are {}",
            known.join(", ")
        ),
    };
    let problem = Problem::new(ProblemType::NotFound, detail).response();
    problem.map(|body| ResponseBody::buffered(body.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_limits_have_type_tokens() {
        let types = [
            (Some("tokens"), "tokens"),
            (Some("input_tokens"), "tokens"),
            (Some("output_tokens"), "tokens"),
            (Some("requests"), "requests"),
            (Some("concurrency"), "requests"),
            (None, "requests"),
        ];
        for (limit, expected) in types {
            let error = ProxyError::new(ErrorKind::of_limit(limit), "");
            assert_eq!(error.body(Dialect::OpenAi)["error"]["type"], expected, "{limit:?}");
            assert_eq!(error.body(Dialect::OpenAi)["error"]["code"], "rate_limit_exceeded");
        }
    }

    #[test]
    fn retry_after_is_rounded_up_and_never_shortened() {
        let mut headers = HeaderMap::new();
        RetryAfter::from(Duration::from_micros(1_000_001)).write(&mut headers);
        assert_eq!(
            (&headers[&RETRY_AFTER_MS], &headers[RETRY_AFTER]),
            (&HeaderValue::from(1_001), &HeaderValue::from(2))
        );
        extend_retry_after(&mut headers, Duration::from_millis(900));
        assert_eq!(headers[&RETRY_AFTER_MS], "1001");
        extend_retry_after(&mut headers, Duration::from_secs(7));
        assert_eq!(headers[RETRY_AFTER], "7");
        let mut dated = HeaderMap::new();
        dated.insert(RETRY_AFTER, HeaderValue::from_static("30"));
        extend_retry_after(&mut dated, Duration::from_secs(7));
        assert_eq!(dated[RETRY_AFTER], "30");
    }
}
