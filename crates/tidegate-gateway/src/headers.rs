//! Which request and response headers are forwarded.
//!
//! Hop-by-hop headers, Tidegate's own headers and headers that override the method or path are
//! removed. All other headers reach the provider that the caller named unchanged. A fallback
//! receives only headers that are known not to contain a secret.

use std::borrow::Cow;

use http::header::{self, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderName};
use http::{HeaderMap, HeaderValue};
use tidegate_providers::request::is_override_header;

use crate::request::options::PREFIX;
use crate::request::uri_path;

/// Hop-by-hop headers, as in RFC 9110, section 7.6.1.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Headers that carry a key.
pub(crate) static KEY_HEADERS: [HeaderName; 5] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-goog-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("ocp-apim-subscription-key"),
];
/// Query parameters that carry a key.
pub(crate) const KEY_PARAMS: [&str; 4] = ["key", "api-key", "subscription-key", "access_token"];

/// Headers that are sent to a fallback. Any other header may be a secret between the caller and the
/// provider it named.
const FALLBACK_HEADERS: [&str; 10] = [
    "accept",
    "accept-encoding",
    "anthropic-beta",
    "anthropic-version",
    "content-encoding",
    "content-length",
    "content-type",
    "idempotency-key",
    "openai-beta",
    "user-agent",
];
/// Prefix of the headers in which SDKs describe their platform.
const SDK_PREFIX: &str = "x-stainless-";
/// Query parameters that are sent to a fallback.
const FALLBACK_PARAMS: [&str; 2] = ["alt", "beta"];

/// Response headers with the provider's request id.
const UPSTREAM_ID_HEADERS: [&str; 4] =
    ["x-request-id", "request-id", "apim-request-id", "x-goog-request-id"];

/// Content codings that the provider may use for its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptedCoding {
    /// Whatever the caller accepts.
    Any,
    /// None, because token usage is read from the body.
    Identity,
}

/// Removes headers that must not reach the provider.
pub(crate) fn strip_request(headers: &mut HeaderMap, coding: AcceptedCoding) {
    remove_hop_by_hop(headers);
    headers.remove(HOST);
    // The HTTP server has already answered `100 Continue`.
    headers.remove(header::EXPECT);
    // With an override, the provider would process another request than the one that was charged.
    let is_removed =
        |name: &&HeaderName| is_tidegate_header(name) || is_override_header(name.as_str());
    if headers.keys().any(|name| is_removed(&name)) {
        let removed: Vec<HeaderName> = headers.keys().filter(is_removed).cloned().collect();
        for name in removed {
            headers.remove(name);
        }
    }
    if coding == AcceptedCoding::Identity {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
}

/// Removes hop-by-hop headers.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove(header::PROXY_AUTHENTICATE);
}

/// Whether a request asks for a WebSocket upgrade. Other upgrades, such as h2c, may be ignored.
pub(crate) fn is_websocket_upgrade(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(header::UPGRADE).iter().filter_map(|value| value.to_str().ok());
    offers.flat_map(|offers| offers.split(',')).any(|offer| {
        let protocol = offer.split('/').next().unwrap_or_default().trim();
        protocol.eq_ignore_ascii_case("websocket")
    })
}

/// Returns the provider's id of a request.
pub(crate) fn upstream_request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    UPSTREAM_ID_HEADERS.iter().find_map(|name| headers.get(*name).cloned())
}

/// Removes `content-length` if it differs from the length of the body.
pub(crate) fn fix_content_length(headers: &mut HeaderMap, length: usize) {
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if declared.and_then(|declared| declared.trim().parse::<usize>().ok()) != Some(length) {
        headers.remove(CONTENT_LENGTH);
    }
}

fn is_tidegate_header(name: &HeaderName) -> bool {
    name.as_str().starts_with(PREFIX)
}

/// Removes all headers that carry a key.
pub(crate) fn remove_keys(headers: &mut HeaderMap) {
    for name in &KEY_HEADERS {
        headers.remove(name);
    }
}

/// Returns the headers to send to a fallback.
pub(crate) fn for_fallback(headers: &HeaderMap) -> HeaderMap {
    let is_forwarded = |name: &HeaderName| {
        FALLBACK_HEADERS.contains(&name.as_str()) || name.as_str().starts_with(SDK_PREFIX)
    };
    let forwarded = headers.iter().filter(|(name, _)| is_forwarded(name));
    let mut kept = HeaderMap::new();
    forwarded.for_each(|(name, value)| {
        kept.append(name, value.clone());
    });
    kept
}

/// Returns the path and query without the caller's key.
pub(crate) fn target_without_key(target: &str) -> Cow<'_, str> {
    filter_query(target, |param| !is_param_named(param, &KEY_PARAMS))
}

/// Returns the path and query to send to a fallback.
pub(crate) fn target_for_fallback(target: &str) -> Cow<'_, str> {
    filter_query(target, |param| is_param_named(param, &FALLBACK_PARAMS))
}

/// Returns the path and query with only the kept parameters; borrowed if all are kept.
pub(crate) fn filter_query(target: &str, is_kept: impl Fn(&str) -> bool) -> Cow<'_, str> {
    let Some((path, query)) = target.split_once('?') else { return target.into() };
    if query_params(query).all(&is_kept) {
        return target.into();
    }
    let kept: Vec<&str> = query_params(query).filter(|param| is_kept(param)).collect();
    if kept.is_empty() {
        return path.into();
    }
    [path, "?", &kept.join("&")].concat().into()
}

pub(crate) fn query_params(query: &str) -> impl Iterator<Item = &str> {
    query.split('&')
}

/// Whether a query parameter has one of these names, percent-encoded or not.
pub(crate) fn is_param_named(param: &str, names: &[&str]) -> bool {
    let name = param.split('=').next().unwrap_or_default();
    let name = uri_path::percent_decoded(name.as_bytes());
    names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        headers.iter().map(pair).collect()
    }

    #[test]
    fn hop_by_hop_and_tidegate_headers_are_removed() {
        let mut request = headers(&[
            ("connection", "keep-alive, X-Secret-Hop"),
            ("x-secret-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("expect", "100-continue"),
            ("host", "gateway"),
            ("x-tidegate-tenant", "a"),
            ("x-tidegate-anything", "b"),
            ("x-http-method-override", "POST"),
            ("x_http_method", "POST"),
            ("x-original-url", "/v1/chat/completions"),
            ("accept-encoding", "gzip"),
            ("x-odd", "1"),
        ]);
        strip_request(&mut request, AcceptedCoding::Identity);
        assert_eq!(request.len(), 2, "{request:?}");
        assert_eq!(request["accept-encoding"], "identity");
    }

    #[test]
    fn only_the_key_is_removed_from_a_query() {
        for (target, expected) in [
            ("/p?alt=sse&key=1&x=2", "/p?alt=sse&x=2"),
            ("/p?key=1", "/p"),
            ("/p?k%65y=1&x=2", "/p?x=2"),
            ("/p?monkey=1", "/p?monkey=1"),
            ("/p", "/p"),
        ] {
            assert_eq!(target_without_key(target), expected);
        }
        assert_eq!(target_for_fallback("/p?a%6Ct=sse&token=1&key=2"), "/p?a%6Ct=sse");
    }
}
