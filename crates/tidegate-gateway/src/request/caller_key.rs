//! The caller's key: the one that the provider will see, in canonical form.
//!
//! A call is charged to the account of its key, so a key has one spelling here and a forwarded
//! request has one key. The `Authorization` scheme, surrounding white space and the encoding of a
//! query do not matter. If there are several keys, the one in the provider's own header wins, then
//! the first of the others; different keys are not forwarded. A key that the gateway and a provider
//! could read differently is refused.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_providers::request::credential_header_name;
use tidegate_providers::{Credential, Dialect};

use crate::headers::{KEY_HEADERS, KEY_PARAMS, filter_query, is_param_named, query_params};
use crate::request::uri_path;

/// Why a key cannot be charged to an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyError {
    /// Servers could read it differently.
    #[error(
        "a key must be one word of visible ASCII characters without quotes, commas or semicolons, \
         such as in `Authorization: Bearer KEY`"
    )]
    Malformed,
    /// User and password, either of which may be the key.
    #[error(
        "`Authorization: Basic` is not forwarded to this provider; send the key as `Bearer KEY`"
    )]
    Basic,
}

/// A caller's key.
#[derive(Debug)]
pub(crate) struct CallerKey {
    pub(crate) credential: Credential,
    /// Whether the request also contains other keys.
    has_others: bool,
}

/// The key found in one place, if any.
type KeyResult<'v> = Result<Option<Cow<'v, str>>, KeyError>;

impl CallerKey {
    /// Reads the key from the headers and the query of a request.
    pub(crate) fn read(
        dialect: Dialect,
        headers: &HeaderMap,
        target: &str,
    ) -> Result<Self, KeyError> {
        let own = credential_header_name(dialect);
        let others = KEY_HEADERS.iter().filter(|name| **name != own);
        let header_keys = [&own].into_iter().chain(others).flat_map(|name| {
            headers.get_all(name).iter().map(move |value| key_in_header(name, value))
        });
        let query = target.split_once('?').map_or("", |(_, query)| query);
        let query_keys = query_params(query)
            .filter(|param| is_param_named(param, &KEY_PARAMS))
            .map(key_in_query);
        let mut chosen: Option<Cow<'_, str>> = None;
        let mut has_others = false;
        for found in header_keys.chain(query_keys) {
            match (found, &chosen) {
                (Ok(None), _) => {}
                (Ok(key), None) => chosen = key,
                (Err(error), None) => return Err(error),
                (found, Some(_)) => has_others |= found != Ok(chosen.clone()),
            }
        }
        let credential = chosen.map_or_else(Credential::none, |key| Credential::new(&key));
        Ok(Self { credential, has_others })
    }

    /// Removes all other keys from the request. Returns the path and query without them.
    pub(crate) fn remove_other_keys(&self, headers: &mut HeaderMap, target: &Arc<str>) -> Arc<str> {
        if !self.has_others {
            return target.clone();
        }
        let key = self.credential.reveal();
        let is_chosen = |found: KeyResult<'_>| found.is_ok_and(|found| found.as_deref() == key);
        for name in &KEY_HEADERS {
            let mut values = headers.get_all(name).iter();
            let chosen = values.find(|value| is_chosen(key_in_header(name, value))).cloned();
            headers.remove(name);
            headers.extend(chosen.map(|value| (name.clone(), value)));
        }
        let is_kept =
            |param: &str| !is_param_named(param, &KEY_PARAMS) || is_chosen(key_in_query(param));
        filter_query(target, is_kept).into()
    }
}

/// Returns the key in a header, without its scheme.
fn key_in_header<'v>(name: &HeaderName, value: &'v HeaderValue) -> KeyResult<'v> {
    let text = value.to_str().map_err(|_| KeyError::Malformed)?.trim();
    if *name != AUTHORIZATION {
        return parse_key(text.into());
    }
    let (scheme, key) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    match key.trim() {
        _ if scheme.eq_ignore_ascii_case("basic") => Err(KeyError::Basic),
        "" if scheme.eq_ignore_ascii_case("bearer") => Ok(None),
        // No scheme, just the key.
        "" => parse_key(scheme.into()),
        key => parse_key(key.into()),
    }
}

/// Returns the key in a query parameter.
fn key_in_query(param: &str) -> KeyResult<'_> {
    let Some((_, value)) = param.split_once('=') else { return Ok(None) };
    if !value.contains(['%', '+']) {
        return parse_key(value.into());
    }
    let spaced = value.replace('+', " ");
    let decoded = uri_path::percent_decoded(spaced.as_bytes()).into_owned();
    let decoded = String::from_utf8(decoded).map_err(|_| KeyError::Malformed)?;
    parse_key(decoded.trim().to_owned().into())
}

/// Checks that all servers read the key alike; `None` if it is empty.
fn parse_key(key: Cow<'_, str>) -> KeyResult<'_> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"',;".contains(&byte);
    match key {
        key if key.is_empty() => Ok(None),
        key if key.bytes().all(is_plain) => Ok(Some(key)),
        _ => Err(KeyError::Malformed),
    }
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

    fn read(
        dialect: Dialect,
        pairs: &[(&'static str, &'static str)],
        target: &str,
    ) -> Result<Option<String>, KeyError> {
        let key = CallerKey::read(dialect, &headers(pairs), target)?;
        Ok(key.credential.reveal().map(ToOwned::to_owned))
    }

    fn ok(key: &str) -> Result<Option<String>, KeyError> {
        Ok(Some(key.to_owned()))
    }

    #[test]
    fn key_is_found_in_every_place() {
        for name in ["authorization", "x-api-key", "x-goog-api-key", "api-key"] {
            let value = if name == "authorization" { "Bearer sk-1" } else { "sk-1" };
            assert_eq!(read(Dialect::OpenAi, &[(name, value)], "/v1"), ok("sk-1"), "{name}");
        }
        for target in ["/v1beta/models?alt=sse&key=sk-1", "/v1?key=&k%65y=sk-1"] {
            assert_eq!(read(Dialect::OpenAi, &[], target), ok("sk-1"), "{target}");
        }
        assert_eq!(read(Dialect::OpenAi, &[], "/v1"), Ok(None));
    }

    #[test]
    fn provider_header_comes_first_and_empty_headers_are_ignored() {
        let both = [("authorization", "Bearer other"), ("x-api-key", "own")];
        assert_eq!(read(Dialect::Anthropic, &both, "/v1"), ok("own"));
        assert_eq!(read(Dialect::OpenAi, &both, "/v1"), ok("other"));
        for empty in ["", "Bearer", "Bearer ", "bearer\t"] {
            let pairs = [("authorization", empty), ("x-api-key", "own")];
            assert_eq!(read(Dialect::OpenAi, &pairs, "/v1"), ok("own"), "{empty:?}");
        }
    }

    #[test]
    fn all_spellings_of_a_key_are_equal() {
        for value in [
            "Bearer sk-1",
            "bearer sk-1",
            "BEARER\tsk-1",
            "Bearer \t  sk-1",
            "Bearer sk-1 \t",
            "Token sk-1",
            "sk-1",
        ] {
            for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
                assert_eq!(
                    read(dialect, &[("authorization", value)], "/v1"),
                    ok("sk-1"),
                    "{value:?}"
                );
            }
        }
        assert_eq!(read(Dialect::Anthropic, &[("x-api-key", "\tsk-1 ")], "/v1"), ok("sk-1"));
        for target in ["/p?key=%73k-1", "/p?key=sk%2D1", "/p?KEY=sk-1+", "/p?key=%20sk-1%09"] {
            assert_eq!(read(Dialect::Gemini, &[], target), ok("sk-1"), "{target}");
        }
    }

    #[test]
    fn ambiguous_keys_are_rejected() {
        for value in [
            "Bearer sk-1 sk-2",
            "Bearer Bearer sk-1",
            "Bearer sk-1, Bearer sk-2",
            "Bearer \"sk-1\"",
            "Bearer 'sk-1'",
            "Bearer sk-1;a",
            "a b c",
        ] {
            let read = read(Dialect::OpenAi, &[("authorization", value)], "/v1");
            assert_eq!(read, Err(KeyError::Malformed), "{value:?}");
        }
        for value in ["Basic OnNrLTE=", "basic\tOnNrLTE="] {
            let read = read(Dialect::OpenAi, &[("authorization", value)], "/v1");
            assert_eq!(read, Err(KeyError::Basic), "{value:?}");
        }
        let mut coded = HeaderMap::new();
        coded.insert(AUTHORIZATION, HeaderValue::from_bytes(b"Bearer sk-1\xa0").unwrap());
        assert!(CallerKey::read(Dialect::OpenAi, &coded, "/v1").is_err());
        assert_eq!(read(Dialect::Gemini, &[], "/v1?key=a%00"), Err(KeyError::Malformed));
    }

    #[test]
    fn only_the_chosen_key_is_sent() {
        let mut sent = headers(&[
            ("authorization", "Bearer sk-2"),
            ("authorization", "Bearer\tsk-1"),
            ("x-api-key", "sk-1"),
            ("api-key", "sk-3"),
            ("accept", "*/*"),
        ]);
        let target: Arc<str> = "/p?alt=sse&key=sk-4&k%65y=sk-1".into();
        let key = CallerKey::read(Dialect::Anthropic, &sent, &target).unwrap();
        assert_eq!(&*key.remove_other_keys(&mut sent, &target), "/p?alt=sse&k%65y=sk-1");
        let left: Vec<_> =
            sent.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(left.len(), 3, "{left:?}");
        assert_eq!(sent["authorization"], "Bearer\tsk-1");
        assert_eq!(
            (&sent["x-api-key"], &sent["accept"]),
            (&"sk-1".parse().unwrap(), &"*/*".parse().unwrap())
        );
    }

    #[test]
    fn repeated_identical_keys_are_unchanged() {
        let pairs = [("authorization", "Bearer sk-1"), ("x-api-key", "sk-1"), ("api-key", "")];
        let mut sent = headers(&pairs);
        let target: Arc<str> = "/p?key=sk-1".into();
        let key = CallerKey::read(Dialect::OpenAi, &sent, &target).unwrap();
        assert_eq!(key.remove_other_keys(&mut sent, &target), target);
        assert_eq!(sent, headers(&pairs));
    }
}
