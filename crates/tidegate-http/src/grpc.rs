//! gRPC: refusals as statuses with error details, and a reader for clients.
//!
//! A [`LimitLayer`](crate::layer::LimitLayer) answers gRPC calls, recognized by their content type,
//! with a trailers-only response, so that clients with a retry policy see the push-back. A bare 429
//! would do harm: without `grpc-status`, clients map it to UNAVAILABLE, and some retry at once.
//!
//! | refused because | code | hint |
//! | --- | --- | --- |
//! | a limit is used up, or too much is pending | RESOURCE_EXHAUSTED | when to retry |
//! | the cost can never fit, or an allowance is used up | FAILED_PRECONDITION | do not retry |
//! | the store is unavailable | UNAVAILABLE | when to retry, if known |
//! | the request has no key to charge | INVALID_ARGUMENT, UNAUTHENTICATED, INTERNAL | none |

mod client;
mod method;
mod status;

pub use client::{CallError, retry_after};
pub use method::PerMethod;
pub(crate) use method::Table;
pub use status::status;

use http::header::{CONTENT_TYPE, HeaderMap};

/// Returns whether a request is a gRPC call, judging by its content type.
#[must_use]
pub fn is_call(headers: &HeaderMap) -> bool {
    let Some(media_type) = headers.get(CONTENT_TYPE) else { return false };
    let name = b"application/grpc";
    let Some((start, rest)) = media_type.as_bytes().split_at_checked(name.len()) else {
        return false;
    };
    start.eq_ignore_ascii_case(name) && matches!(rest, [] | [b'+' | b';', ..])
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn grpc_calls_are_recognized_by_content_type() {
        let of = |media_type: &'static str| {
            is_call(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))]))
        };
        assert!(of("application/grpc") && of("application/grpc+proto") && of("application/grpc;x"));
        assert!(of("Application/gRPC+proto"), "media types are case-insensitive");
        assert!(!of("application/json") && !of("application/grpc-web") && !of("application/grpcx"));
        assert!(!is_call(&HeaderMap::new()));
    }
}
