//! Renders a refusal as a gRPC status: code, message, details and metadata.

use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, QuotaViolation, StatusExt as _};

use crate::field::{RETRY_AFTER_MS, Report, RetryAfter};
use crate::key::MissingKeyError;
use crate::refusal::{Refusal, RefusalCause};

/// Domain of `ErrorInfo` reasons.
const DOMAIN: &str = "tidegate";
/// Metadata key with the milliseconds after which a client with a retry policy retries.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Builds the gRPC status for a refusal.
///
/// ```
/// use tidegate_http::grpc::status;
/// use tidegate_http::{RefusalCause, Refusal};
/// use tonic::Code;
/// let rendered = status(&Refusal::new(RefusalCause::Store));
/// assert_eq!(rendered.code(), Code::Unavailable);
/// ```
#[must_use]
pub fn status(refusal: &Refusal<'_>) -> Status {
    let (code, message) = code_and_message(refusal);
    let mut details = ErrorDetails::new();
    if let Some(retry) = refusal.retry_after() {
        details.set_retry_info(Some(Duration::from_millis(retry.millis())));
    }
    let violations: Vec<_> = refusal.violated().map(violation).collect();
    if !violations.is_empty() {
        details.set_quota_failure(violations);
    }
    if let (Some(level), Some(reason)) = (refusal.level(), refusal.reason()) {
        let level = HashMap::from([("level".to_owned(), level.to_owned())]);
        details.set_error_info(reason.to_ascii_uppercase(), DOMAIN, level);
    }
    Status::with_error_details_and_metadata(code, message, details, metadata(refusal))
}

fn code_and_message(refusal: &Refusal<'_>) -> (Code, &'static str) {
    match (refusal.cause(), refusal.retry_after()) {
        (RefusalCause::Limit, Some(_)) => (Code::ResourceExhausted, "Rate limit exceeded"),
        (RefusalCause::Limit, None) if refusal.binding().is_some_and(Report::is_used_up) => {
            (Code::FailedPrecondition, "Allowance used up")
        }
        (RefusalCause::Limit, None) => {
            (Code::FailedPrecondition, "Operation cost exceeds rate limit capacity")
        }
        (RefusalCause::BackPressure, _) => (Code::ResourceExhausted, "The service is overloaded"),
        (RefusalCause::Store, _) => {
            (Code::Unavailable, "Rate limits cannot be checked at the moment")
        }
        (RefusalCause::MissingKey(MissingKeyError::BadRequest), _) => {
            (Code::InvalidArgument, "The call has no key to charge")
        }
        (RefusalCause::MissingKey(MissingKeyError::Unauthorized), _) => {
            (Code::Unauthenticated, "The call has no credential to charge")
        }
        (RefusalCause::MissingKey(MissingKeyError::NoPeer), _) => {
            let message = "The server does not know the peer address; put a PeerAddr into the \
                           extensions of each request";
            (Code::Internal, message)
        }
    }
}

fn violation(report: &Report<'_>) -> QuotaViolation {
    QuotaViolation {
        quota_metric: report.unit().as_str().to_owned(),
        quota_id: report.name().to_owned(),
        quota_value: i64::try_from(report.quota()).unwrap_or(i64::MAX),
        ..QuotaViolation::new(report.name(), "over the limit")
    }
}

/// Returns `retry-after-ms`, which is a convention, and the push-back that clients with a retry
/// policy obey: a number of milliseconds, or a negative one for never.
fn metadata(refusal: &Refusal<'_>) -> MetadataMap {
    let mut fields = HeaderMap::new();
    match refusal.retry_after().map(RetryAfter::millis) {
        Some(millis) => {
            fields.insert(&RETRY_AFTER_MS, millis.into());
            let pushback = i32::try_from(millis).unwrap_or(i32::MAX);
            fields.insert(PUSHBACK, pushback.into());
        }
        None if refusal.cause() == RefusalCause::Limit => {
            fields.insert(PUSHBACK, HeaderValue::from_static("-1"));
        }
        None => {}
    }
    MetadataMap::from_headers(fields)
}
