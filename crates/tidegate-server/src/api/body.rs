//! Reads complete JSON bodies and writes JSON responses.

use std::error::Error;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;

use super::problem::Problem;
use crate::listener::bounds::MAX_BODY;

/// Reads a complete body of at most [`MAX_BODY`] bytes within `time`.
pub(crate) async fn read_all<B>(body: B, time: Duration) -> Result<Bytes, Problem>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let body = tokio::time::timeout(time, Limited::new(body, MAX_BODY).collect());
    match body.await.map_err(|_| Problem::SlowBody)? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::TooLarge),
        // The caller disconnected.
        Err(_) => Err(Problem::Incomplete),
    }
}

/// Creates a JSON response.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    // Numbers and strings always serialize.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let content_type = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, content_type)], body).into_response()
}

/// Accepted media types of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaTypes {
    /// `application/json`.
    Json,
    /// `application/json` or `application/merge-patch+json` (RFC 7396).
    MergePatch,
}

impl MediaTypes {
    fn accepts(self, media: &str) -> bool {
        let patch = "application/merge-patch+json";
        media.eq_ignore_ascii_case("application/json")
            || (self == Self::MergePatch && media.eq_ignore_ascii_case(patch))
    }
}

/// Rejects a body that is not declared as one of the accepted types. A web page of another origin
/// cannot send these types without a CORS preflight request.
pub(crate) fn require_json(headers: &HeaderMap, accepted: MediaTypes) -> Result<(), Problem> {
    let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(plain) {
        return Err(Problem::NotJsonType);
    }
    // With several headers, an intermediary might believe another one.
    let mut declared = headers.get_all(CONTENT_TYPE).iter();
    let (Some(declared), None) = (declared.next(), declared.next()) else {
        return Err(Problem::NotJsonType);
    };
    let declared = declared.to_str().map_err(|_| Problem::NotJsonType)?;
    let mut parts = declared.split(';').map(str::trim);
    let json = parts.next().is_some_and(|media| accepted.accepts(media));
    let utf8 = parts.filter(|part| !part.is_empty()).all(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        !name.eq_ignore_ascii_case("charset")
            || value.trim_matches('"').eq_ignore_ascii_case("utf-8")
    });
    if json && utf8 { Ok(()) } else { Err(Problem::NotJsonType) }
}
