//! Interprets gRPC statuses on the client side.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::field::MAX_WAIT;

/// Error of a gRPC call: rate limited with a time to wait, or any other failure.
///
/// ```
/// use std::time::Duration;
/// use tidegate_http::grpc::CallError;
/// use tonic::metadata::MetadataMap;
/// use tonic::{Code, Status};
///
/// let mut metadata = MetadataMap::new();
/// metadata.insert("retry-after-ms", "1250".parse().unwrap());
/// let status = Status::with_metadata(Code::ResourceExhausted, "slow down", metadata);
/// match CallError::from(status) {
///     CallError::RateLimited { retry_after, .. } => {
///         assert_eq!(retry_after, Duration::from_millis(1_250));
///     }
///     other => unreachable!("{other}"),
/// }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server limits this call and reports when to retry.
    #[error("rate limited: {}; try again in {} ms", status.message(), retry_after.as_millis())]
    RateLimited {
        /// How long to wait.
        retry_after: Duration,
        /// The status from the server.
        #[source]
        status: Status,
    },
    /// Any other failure, including a limit without a valid wait.
    #[error(transparent)]
    Other(Status),
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        match (status.code(), retry_after(&status)) {
            (Code::ResourceExhausted, Some(retry_after)) => {
                Self::RateLimited { retry_after, status }
            }
            _ => Self::Other(status),
        }
    }
}

/// Returns when to retry according to a status: from `retry-after-ms`, the push-back (which cannot
/// exceed 24 days) or the error details, in this order. `None` if there is no hint or it is not a
/// number. A negative push-back means never, whatever else is present. Waits are capped at a leap
/// year.
#[must_use]
pub fn retry_after(status: &Status) -> Option<Duration> {
    let metadata = status.metadata();
    let pushback = metadata.get("grpc-retry-pushback-ms");
    let pushback_ms = pushback.and_then(|value| value.to_str().ok().and_then(whole_number));
    // gRPC clients also treat an invalid push-back as never.
    if pushback.is_some() && pushback_ms.is_none() {
        return None;
    }
    if let Some(value) = metadata.get("retry-after-ms") {
        let exact = value.to_str().ok().and_then(whole_number);
        let millis = exact.or(pushback_ms)?;
        return Some(Duration::from_millis(millis).min(MAX_WAIT));
    }
    let pushback_wait = pushback_ms.map(Duration::from_millis);
    let wait = pushback_wait.or_else(|| status.get_details_retry_info()?.retry_delay)?;
    Some(wait.min(MAX_WAIT))
}

/// Parses digits and nothing else, which excludes negative numbers.
fn whole_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number too large to parse is capped by the callers.
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataMap;
    use tonic_types::ErrorDetails;

    use super::*;

    fn with(code: Code, pairs: &[(&'static str, &str)]) -> Status {
        let mut metadata = MetadataMap::new();
        for (name, value) in pairs {
            metadata.insert(*name, value.parse().unwrap());
        }
        Status::with_metadata(code, "no", metadata)
    }

    fn rate_limit_wait(status: Status) -> Option<Duration> {
        match CallError::from(status) {
            CallError::RateLimited { retry_after, .. } => Some(retry_after),
            CallError::Other(_) => None,
        }
    }

    #[test]
    fn valid_wait_yields_rate_limited_error() {
        let exhausted =
            |value| rate_limit_wait(with(Code::ResourceExhausted, &[("retry-after-ms", value)]));
        assert_eq!(exhausted("1250"), Some(Duration::from_millis(1_250)));
        assert_eq!(exhausted("0"), Some(Duration::ZERO));
        assert_eq!(exhausted("99999999999999999999999"), Some(MAX_WAIT));
        for text in ["", "soon", "-5", "1.5", "+7", " 7", "0x10", "12ms"] {
            assert_eq!(exhausted(text), None, "{text:?}");
        }
        assert_eq!(rate_limit_wait(with(Code::ResourceExhausted, &[])), None);
        assert_eq!(rate_limit_wait(with(Code::Unavailable, &[("retry-after-ms", "5")])), None);
    }

    #[test]
    fn exact_wait_takes_precedence_over_pushback_and_details() {
        let both = [("retry-after-ms", "7"), ("grpc-retry-pushback-ms", "9")];
        assert_eq!(
            rate_limit_wait(with(Code::ResourceExhausted, &both)),
            Some(Duration::from_millis(7))
        );
        let broken = [("retry-after-ms", "soon"), ("grpc-retry-pushback-ms", "9")];
        assert_eq!(
            rate_limit_wait(with(Code::ResourceExhausted, &broken)),
            Some(Duration::from_millis(9))
        );
        let pushed = [("grpc-retry-pushback-ms", "9")];
        assert_eq!(
            rate_limit_wait(with(Code::ResourceExhausted, &pushed)),
            Some(Duration::from_millis(9))
        );
        let never = [("retry-after-ms", "7"), ("grpc-retry-pushback-ms", "-1")];
        assert_eq!(rate_limit_wait(with(Code::ResourceExhausted, &never)), None, "it says never");
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
        let status = Status::with_error_details(Code::ResourceExhausted, "no", details);
        assert_eq!(rate_limit_wait(status), Some(Duration::from_secs(3)));
    }
}
