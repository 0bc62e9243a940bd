//! DeepSeek: no limit but calls at the same time, nothing about it in headers, and a queue whose
//! callers are kept awake with blank lines or comments.

use http::StatusCode;

use super::compatible::{Compatible, StreamUsage, error};
use super::openai::{plain, server_error};
use super::{Failure, Refused, Scene};

pub(super) static DEEPSEEK: Compatible = Compatible {
    prefixes: &["/v1", ""],
    embeddings: false,
    forbidden: &[],
    announce: |_, _| {},
    refuse,
    breaking: |_| server_error(),
    stream_usage: StreamUsage::OnRequest,
    keep_alive: Some((": keep-alive\n\n", "\n")),
};

fn refuse(failure: &Failure, _scene: &Scene<'_>) -> Refused {
    match failure {
        Failure::Limited(_) | Failure::Busy { .. } | Failure::Throttled { .. } => Refused::new(
            StatusCode::TOO_MANY_REQUESTS,
            error("You are sending requests too fast.", "rate_limit_reached", None),
        ),
        Failure::OutOfCredit => Refused::new(
            StatusCode::PAYMENT_REQUIRED,
            error("Insufficient Balance", "unknown_error", Some("invalid_request_error")),
        ),
        other => plain(other),
    }
}
