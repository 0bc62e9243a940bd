//! The head of a response: reported limits and request id.

use http::HeaderMap;
use tidegate_providers::response::request_id;
use tidegate_providers::{Failure, ReportedLimits};

use crate::call::CallError;

/// Information from the head of a response.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) reported_limits: ReportedLimits,
    pub(super) request_id: Option<String>,
}

impl Head {
    pub(super) fn read(headers: &HeaderMap, reported_limits: ReportedLimits) -> Self {
        Self { reported_limits, request_id: request_id(headers) }
    }

    /// Creates the error of a failure, completed with the limits and id of the head. Values of the
    /// failure take precedence.
    pub(super) fn failed(&self, mut failure: Failure) -> CallError {
        for (dimension, reading) in self.reported_limits.iter() {
            failure.reported_limits.add(dimension, *reading);
        }
        failure.request_id = failure.request_id.or_else(|| self.request_id.clone());
        CallError::Provider(Box::new(failure))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use tidegate_providers::{Class, Dimension, LimitReading};

    fn reading(remaining: u64) -> LimitReading {
        let window = Duration::from_secs(60);
        LimitReading { limit: None, remaining: Some(remaining), reset: None, window }
    }

    fn head(id: &str) -> Head {
        let mut reported_limits = ReportedLimits::new();
        reported_limits.add(Dimension::Requests, reading(1));
        reported_limits.add(Dimension::Tokens, reading(2));
        let mut headers = HeaderMap::new();
        headers.insert("x-request-id", id.parse().unwrap());
        headers.insert("apim-request-id", "second".parse().unwrap());
        Head::read(&headers, reported_limits)
    }

    #[test]
    fn failure_is_completed_from_the_head() {
        let mut failure = Failure::new("sim".into(), Class::Transient, StatusCode::OK);
        failure.reported_limits.add(Dimension::Tokens, reading(0));
        let error = head("first").failed(failure.clone());
        let failed = error.failure().unwrap();
        assert_eq!(failed.request_id.as_deref(), Some("first"));
        assert_eq!(failed.reported_limits.get(Dimension::Requests), Some(&reading(1)));
        assert_eq!(failed.reported_limits.get(Dimension::Tokens), Some(&reading(0)));
        failure.request_id = Some("its own".to_owned());
        let error = head("first").failed(failure);
        assert_eq!(error.failure().unwrap().request_id.as_deref(), Some("its own"));
    }

    #[test]
    fn invalid_request_id_is_ignored() {
        assert_eq!(head("").request_id.as_deref(), Some("second"));
        assert_eq!(head(&"x".repeat(257)).request_id.as_deref(), Some("second"));
    }
}
