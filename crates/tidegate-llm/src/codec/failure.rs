//! Errors of providers, read from their bodies.

use http::StatusCode;
use serde_json::Value;

use super::classify::Rules;
use crate::class::Class;
use crate::dialect::Dialect;
use crate::error::Failure;
use crate::provider::Provider;

/// An error in the middle of an answer.
pub(crate) fn in_stream(
    dialect: Dialect,
    provider: &Provider,
    body: &Value,
    rules: &Rules,
) -> Failure {
    let _ = (dialect, body, rules);
    Failure::new(provider.clone(), Class::Transient, StatusCode::OK)
}

/// An error instead of an answer.
pub(crate) fn of_response(
    dialect: Dialect,
    provider: &Provider,
    parts: &http::response::Parts,
    body: &[u8],
    rules: &Rules,
) -> Failure {
    let _ = (dialect, body, rules);
    Failure::new(provider.clone(), Class::Transient, parts.status)
}
