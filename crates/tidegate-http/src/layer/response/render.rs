//! Renders a refusal in the protocol of the request.

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};

use super::body::Body;
use crate::layer::settings::Settings;
use crate::refusal::Refusal;

/// Notifies the application of a refusal and builds the response, as a gRPC status or as a problem
/// document.
pub(crate) fn response<B>(
    settings: &Settings,
    request_headers: &HeaderMap,
    refusal: &Refusal<'_>,
) -> Response<Body<B>> {
    settings.notify_refused(refusal);
    #[cfg(feature = "tonic")]
    if crate::grpc::is_call(request_headers) {
        let status = crate::grpc::status(refusal);
        return status.into_http::<bytes::Bytes>().map(|_| Body::empty());
    }
    let _ = request_headers;
    problem(settings, refusal)
}

/// Builds a problem document that must not be cached.
fn problem<B>(settings: &Settings, refusal: &Refusal<'_>) -> Response<Body<B>> {
    let mut response = settings.problems.document(refusal).response();
    let length = response.body().len();
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if refusal.cause().status() == StatusCode::UNAUTHORIZED {
        // RFC 9110 requires a challenge with status 401.
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    settings.fields(refusal.reports()).write(headers);
    response.map(|document| Body::refusal(document.into()))
}
