//! gRPC: refusals as statuses with their details, and a reader of them for clients.
//!
//! A [`LimitLayer`](crate::layer::LimitLayer) answers calls whose content type is that of gRPC
//! with these by itself, in headers alone, so that clients with a retry policy see the push-back.
//! A bare 429 would do harm: without `grpc-status` clients take it for UNAVAILABLE, and some try
//! again at once.
//!
//! | refused because | code | hint |
//! | --- | --- | --- |
//! | a limit is used up, or too much is pending | RESOURCE_EXHAUSTED | when to try again |
//! | it can never fit, or an allowance is used up | FAILED_PRECONDITION | do not try again |
//! | the store cannot answer | UNAVAILABLE | when to try again, if known |
//! | there is nobody to charge | INVALID_ARGUMENT, UNAUTHENTICATED, INTERNAL | none |

mod client;
mod method;
mod status;

pub use client::{CallError, retry_after};
pub use method::PerMethod;
pub(crate) use method::Table;
pub use status::status;

use http::header::{CONTENT_TYPE, HeaderMap};

/// Whether a request is a call of gRPC.
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
    fn calls_are_known_by_their_content_type() {
        let of = |media_type: &'static str| {
            is_call(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))]))
        };
        assert!(of("application/grpc") && of("application/grpc+proto") && of("application/grpc;x"));
        assert!(of("Application/gRPC+proto"), "media types have no case");
        assert!(!of("application/json") && !of("application/grpc-web") && !of("application/grpcx"));
        assert!(!is_call(&HeaderMap::new()));
    }
}
