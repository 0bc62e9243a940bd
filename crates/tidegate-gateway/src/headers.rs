//! Header fields on their way through: which are passed on, and which are not.
//!
//! Fields of one connection stay on it, and so do ours. Everything else passes byte for byte to the
//! provider that was asked for. Another one gets to see what is known to be no secret.

use std::borrow::Cow;

use http::header::{self, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderName};
use http::{HeaderMap, HeaderValue, Uri};
use tidegate_providers::request::key_field;
use tidegate_providers::{Credential, Dialect};

use crate::request::address;
use crate::request::options::PREFIX;

/// Fields that belong to one connection.
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

/// Fields that have a key.
const KEYS: [HeaderName; 5] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-goog-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("ocp-apim-subscription-key"),
];
/// Members of a query that have a key.
const QUERY_KEYS: [&str; 4] = ["key", "api-key", "subscription-key", "access_token"];

/// What another provider than the one that was asked for gets to see. Everything else may be a
/// secret between the caller and the provider that it knows.
const FOR_OTHERS: [&str; 10] = [
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
/// What fields begin with in which SDKs tell what they run on.
const SDK_PREFIX: &str = "x-stainless-";
/// Members of a query that another provider gets to see.
const QUERY_FOR_OTHERS: [&str; 2] = ["alt", "beta"];

/// How the bytes of an answer may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As the caller and the provider like.
    Any,
    /// As they are, since what was used has to be read from them.
    Plain,
}

/// Takes out of a request what is not for the provider.
pub(crate) fn of_request(fields: &mut HeaderMap, coding: Coding) {
    without_hops(fields);
    fields.remove(HOST);
    // Whoever serves us has told the caller to go on already.
    fields.remove(header::EXPECT);
    if fields.keys().any(is_ours) {
        let ours: Vec<HeaderName> = fields.keys().filter(|name| is_ours(name)).cloned().collect();
        for name in ours {
            fields.remove(name);
        }
    }
    if coding == Coding::Plain {
        fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
}

/// Takes out of an answer what is not for the caller.
pub(crate) fn without_hops(fields: &mut HeaderMap) {
    if fields.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = fields
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in named {
            fields.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        fields.remove(name);
    }
    fields.remove(header::PROXY_AUTHENTICATE);
}

/// Whether somebody wants to speak WebSocket from now on. Other offers, such as HTTP/2, may be
/// passed over in silence.
pub(crate) fn is_upgrade(fields: &HeaderMap) -> bool {
    let offers = fields.get_all(header::UPGRADE).iter().filter_map(|value| value.to_str().ok());
    offers.flat_map(|offers| offers.split(',')).any(|offer| {
        let protocol = offer.split('/').next().unwrap_or_default().trim();
        protocol.eq_ignore_ascii_case("websocket")
    })
}

/// Takes out a length that is not that of the body.
pub(crate) fn true_length(fields: &mut HeaderMap, length: usize) {
    let told = fields.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if told.and_then(|told| told.trim().parse::<usize>().ok()) != Some(length) {
        fields.remove(CONTENT_LENGTH);
    }
}

fn is_ours(name: &HeaderName) -> bool {
    name.as_str().starts_with(PREFIX)
}

/// The key of a caller: where its provider looks for it, else wherever one may be.
pub(crate) fn credential(dialect: Dialect, fields: &HeaderMap, uri: &Uri) -> Credential {
    let own = key_field(dialect, Some("-")).ok().flatten().map(|(name, _)| name);
    let named = own.into_iter().chain(KEYS).filter_map(|name| key_in(fields, &name));
    let query = uri.query().unwrap_or_default();
    let asked = members(query).filter(|member| is_named(member, &QUERY_KEYS));
    let asked = asked.filter_map(|member| member.split_once('=').map(|(_, key)| key));
    let key = named.chain(asked).find(|key| !key.is_empty());
    key.map_or_else(Credential::none, Credential::new)
}

/// The key in a field, without the name of its scheme.
fn key_in<'f>(fields: &'f HeaderMap, name: &HeaderName) -> Option<&'f str> {
    let value = fields.get(name)?.to_str().ok()?.trim();
    if *name == AUTHORIZATION {
        let key = value.split_once(' ').map_or(value, |(_, key)| key);
        return Some(key.trim()).filter(|key| !key.eq_ignore_ascii_case("bearer"));
    }
    Some(value)
}

/// Takes out all keys of a caller.
pub(crate) fn without_keys(fields: &mut HeaderMap) {
    for name in &KEYS {
        fields.remove(name);
    }
}

/// The fields that are shown to another provider than the one that was asked for.
pub(crate) fn for_others(fields: &HeaderMap) -> HeaderMap {
    let is_shown = |name: &HeaderName| {
        FOR_OTHERS.contains(&name.as_str()) || name.as_str().starts_with(SDK_PREFIX)
    };
    let shown = fields.iter().filter(|(name, _)| is_shown(name));
    let mut kept = HeaderMap::new();
    shown.for_each(|(name, value)| {
        kept.append(name, value.clone());
    });
    kept
}

/// A path and a query without the key of a caller.
pub(crate) fn query_without_key(target: &str) -> Cow<'_, str> {
    query_of(target, |member| !is_named(member, &QUERY_KEYS))
}

/// A path and a query as they are shown to another provider than the one that was asked for.
pub(crate) fn query_for_others(target: &str) -> Cow<'_, str> {
    query_of(target, |member| is_named(member, &QUERY_FOR_OTHERS))
}

/// A path and a query with those members that are kept; as it was if all of them are.
fn query_of(target: &str, is_kept: impl Fn(&str) -> bool) -> Cow<'_, str> {
    let Some((path, query)) = target.split_once('?') else { return target.into() };
    if members(query).all(&is_kept) {
        return target.into();
    }
    let kept: Vec<&str> = members(query).filter(|member| is_kept(member)).collect();
    if kept.is_empty() {
        return path.into();
    }
    [path, "?", &kept.join("&")].concat().into()
}

fn members(query: &str) -> impl Iterator<Item = &str> {
    query.split('&')
}

/// Whether a member of a query has one of these names, however it is written.
fn is_named(member: &str, names: &[&str]) -> bool {
    let name = member.split('=').next().unwrap_or_default();
    let name = address::decoded(name.as_bytes());
    names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        fields.iter().map(pair).collect()
    }

    #[test]
    fn fields_of_a_connection_and_of_ours_stay_here() {
        let mut request = fields(&[
            ("connection", "keep-alive, X-Secret-Hop"),
            ("x-secret-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("expect", "100-continue"),
            ("host", "gateway"),
            ("x-tidegate-tenant", "a"),
            ("x-tidegate-anything", "b"),
            ("accept-encoding", "gzip"),
            ("x-odd", "1"),
        ]);
        of_request(&mut request, Coding::Plain);
        assert_eq!(request.len(), 2, "{request:?}");
        assert_eq!(request["accept-encoding"], "identity");
    }

    #[test]
    fn a_key_is_found_wherever_it_is() {
        let none = Uri::from_static("/v1");
        let found = |pairs: &[_], uri: &Uri| credential(Dialect::OpenAi, &fields(pairs), uri);
        for name in ["authorization", "x-api-key", "x-goog-api-key", "api-key"] {
            let value = if name == "authorization" { "Bearer sk-1" } else { "sk-1" };
            assert_eq!(found(&[(name, value)], &none).reveal(), Some("sk-1"), "{name}");
        }
        for query in ["/v1beta/models?alt=sse&key=sk-1", "/v1?key=&k%65y=sk-1"] {
            assert_eq!(found(&[], &Uri::from_static(query)).reveal(), Some("sk-1"), "{query}");
        }
        assert_eq!(found(&[], &none).reveal(), None);
    }

    #[test]
    fn the_field_of_the_provider_comes_first_and_empty_ones_are_no_keys() {
        let none = Uri::from_static("/v1");
        let both = [("authorization", "Bearer other"), ("x-api-key", "own")];
        let found = |dialect, pairs: &[_]| credential(dialect, &fields(pairs), &none);
        assert_eq!(found(Dialect::Anthropic, &both).reveal(), Some("own"));
        assert_eq!(found(Dialect::OpenAi, &both).reveal(), Some("other"));
        for empty in ["", "Bearer", "Bearer "] {
            let pairs = [("authorization", empty), ("x-api-key", "own")];
            assert_eq!(found(Dialect::OpenAi, &pairs).reveal(), Some("own"), "{empty:?}");
        }
    }

    #[test]
    fn a_key_in_a_query_is_taken_out_and_nothing_else() {
        for (target, cut) in [
            ("/p?alt=sse&key=1&x=2", "/p?alt=sse&x=2"),
            ("/p?key=1", "/p"),
            ("/p?k%65y=1&x=2", "/p?x=2"),
            ("/p?monkey=1", "/p?monkey=1"),
            ("/p", "/p"),
        ] {
            assert_eq!(query_without_key(target), cut);
        }
        assert_eq!(query_for_others("/p?a%6Ct=sse&token=1&key=2"), "/p?a%6Ct=sse");
    }
}
