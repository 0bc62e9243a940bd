//! Bodies: read whole or not at all, and written as JSON.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest as _, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use super::problem::Problem;

/// The body of a request, if all of it comes in this time. How large it may be is up to the
/// router.
pub(crate) async fn whole(request: Request, time: Duration) -> Result<Bytes, Problem> {
    let body = tokio::time::timeout(time, Bytes::from_request(request, &()));
    body.await.map_err(|_| Problem::SlowBody)?.map_err(|error| refused(&error))
}

/// A body that was not read to its end: too large, or the caller went away.
fn refused(error: &BytesRejection) -> Problem {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        Problem::TooLarge
    } else {
        Problem::Incomplete
    }
}

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    // Bodies of numbers and texts are always serialized.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let content_type = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, content_type)], body).into_response()
}
