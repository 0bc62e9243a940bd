//! Bearer tokens of the admin and gRPC APIs: who may read, and who may change settings.
//!
//! A token is 256 random bits and cannot be guessed, so storing a plain hash is enough: slow
//! password hashes are for secrets that people choose. The configuration contains `sha256:` and the
//! digest. The token itself is shown only once, when it is created.
//!
//! A token is always compared with all configured ones, each in constant time.

mod digest;

use std::net::SocketAddr;

use arc_swap::ArcSwap;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use subtle::Choice;
use tidegate_config::{AdminConfig, TokenHash};

use crate::database::ChangeOrigin;
use crate::listener::connection::Peer;
pub use digest::{CreateTokenError, NewToken, TokenDigest, create_token};

/// Maximum length of a token, in bytes.
const MAX_TOKEN_LEN: usize = 512;

/// What a token permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Reading.
    Read,
    /// Reading and changing.
    Write,
}

/// Why a request is not authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// The request has no bearer token.
    NoToken,
    /// The token is not configured.
    UnknownToken,
    /// The token permits reading only.
    ReadOnly,
}

/// The authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// No tokens are configured, so every caller is accepted.
    Anonymous,
    /// The holder of the token whose digest begins with these digits.
    Token(String),
}

impl Caller {
    /// Returns the author of a change for the audit log: the token, or else the address of the
    /// peer.
    pub(crate) fn note(self, door: &'static str, peer: Option<Peer>) -> ChangeOrigin {
        match (self, peer) {
            (Self::Token(who), _) => ChangeOrigin { door, who: Some(who) },
            (Self::Anonymous, Some(Peer(peer))) => ChangeOrigin::from_peer(door, peer),
            (Self::Anonymous, None) => ChangeOrigin { door, who: None },
        }
    }
}

/// The configured tokens. They can be replaced at any time.
#[derive(Debug, Default)]
pub(crate) struct Tokens(ArcSwap<Vec<(TokenDigest, Role)>>);

impl Tokens {
    /// Replaces all tokens.
    pub(crate) fn replace(&self, tokens: impl IntoIterator<Item = (TokenDigest, Role)>) {
        self.0.store(tokens.into_iter().collect::<Vec<_>>().into());
    }

    /// Replaces all tokens by those of a plan.
    pub(crate) fn configure(&self, plan: &AdminConfig) {
        let with = |role| move |hash: &TokenHash| (TokenDigest::from(hash), role);
        let readers = plan.read_tokens.value.iter().map(with(Role::Read));
        self.replace(readers.chain(plan.write_tokens.value.iter().map(with(Role::Write))));
    }

    /// Returns whether no tokens are configured, so that every caller is accepted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }

    /// Authenticates a request and checks that its token permits `needed`.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        needed: Role,
    ) -> Result<Caller, AuthError> {
        let tokens = self.0.load();
        if tokens.is_empty() {
            return Ok(Caller::Anonymous);
        }
        let presented = TokenDigest::of(bearer(headers)?);
        let (mut reads, mut writes) = (Choice::from(0), Choice::from(0));
        for (digest, role) in tokens.iter() {
            let equal = digest.constant_time_eq(&presented);
            match role {
                Role::Read => reads |= equal,
                Role::Write => writes |= equal,
            }
        }
        match (bool::from(writes), bool::from(reads), needed) {
            (true, _, _) | (_, true, Role::Read) => Ok(Caller::Token(presented.short_hex())),
            (false, true, Role::Write) => Err(AuthError::ReadOnly),
            (false, false, _) => Err(AuthError::UnknownToken),
        }
    }
}

/// Returns the bearer token of a request. More than one `Authorization` header is an error.
fn bearer(headers: &HeaderMap) -> Result<&str, AuthError> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(AuthError::NoToken);
    };
    let text = HeaderValue::to_str(field).map_err(|_| AuthError::UnknownToken)?;
    let (scheme, token) = text.split_once(' ').ok_or(AuthError::NoToken)?;
    let token = token.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err(AuthError::NoToken);
    }
    if token.len() > MAX_TOKEN_LEN { Err(AuthError::UnknownToken) } else { Ok(token) }
}

/// Whether a listener without tokens may be bound to a non-loopback address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unauthenticated {
    /// `allow_unauthenticated` is set.
    Allowed,
    /// `allow_unauthenticated` is not set.
    Refused,
}

/// A listener would accept unauthenticated requests from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{listener} listener: {address} would accept unauthenticated requests because no tokens are \
     configured; create one with `tidegate key` and add its hash to `write_tokens` under [admin], \
     or listen on 127.0.0.1:{port}, or set `allow_unauthenticated = true` under [admin] if access is \
     restricted otherwise",
    port = address.port()
)]
pub struct UnauthenticatedListener {
    /// Name of the listener: `admin` or `grpc`.
    pub listener: &'static str,
    /// The address of the listener.
    pub address: SocketAddr,
}

/// Checks that a listener at this address requires tokens, is on loopback, or is explicitly open.
pub(crate) fn check_listener(
    listener: &'static str,
    address: SocketAddr,
    plan: &AdminConfig,
) -> Result<(), UnauthenticatedListener> {
    let tokens = Tokens::default();
    tokens.configure(plan);
    let unauthenticated = match plan.allow_unauthenticated.value {
        true => Unauthenticated::Allowed,
        false => Unauthenticated::Refused,
    };
    check_address(listener, address, &tokens, unauthenticated)
}

/// Checks that a listener may be bound to an address.
fn check_address(
    listener: &'static str,
    address: SocketAddr,
    tokens: &Tokens,
    unauthenticated: Unauthenticated,
) -> Result<(), UnauthenticatedListener> {
    let is_protected = address.ip().is_loopback() || !tokens.is_empty();
    if is_protected || unauthenticated == Unauthenticated::Allowed {
        return Ok(());
    }
    Err(UnauthenticatedListener { listener, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization(field: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(field).unwrap())])
    }

    fn tokens() -> (Tokens, String, String) {
        let (reader, writer) = (create_token().unwrap(), create_token().unwrap());
        let tokens = Tokens::default();
        tokens.replace([(reader.digest, Role::Read), (writer.digest, Role::Write)]);
        (tokens, format!("Bearer {}", reader.token), format!("bearer  {}", writer.token))
    }

    #[test]
    fn without_tokens_every_caller_is_accepted() {
        let tokens = Tokens::default();
        assert_eq!(tokens.authenticate(&HeaderMap::new(), Role::Write), Ok(Caller::Anonymous));
        assert_eq!(
            tokens.authenticate(&authorization("Bearer x"), Role::Write),
            Ok(Caller::Anonymous)
        );
    }

    #[test]
    fn write_tokens_can_read_but_read_tokens_cannot_write() {
        let (tokens, reader, writer) = tokens();
        assert!(tokens.authenticate(&authorization(&reader), Role::Read).is_ok());
        assert_eq!(
            tokens.authenticate(&authorization(&reader), Role::Write),
            Err(AuthError::ReadOnly)
        );
        for role in [Role::Read, Role::Write] {
            let Ok(Caller::Token(who)) = tokens.authenticate(&authorization(&writer), role) else {
                panic!("a write token permits everything")
            };
            assert_eq!(who.len(), 8);
            assert!(!writer.contains(&who));
        }
    }

    #[test]
    fn unknown_and_malformed_tokens_are_refused() {
        let (tokens, reader, _) = tokens();
        let refused =
            |field: &str| tokens.authenticate(&authorization(field), Role::Read).unwrap_err();
        for field in
            ["Bearer", "Bearer ", "Basic dXNlcjpwYXNz", reader.trim_start_matches("Bearer ")]
        {
            assert_eq!(refused(field), AuthError::NoToken, "{field}");
        }
        let (shorter, longer) = (&reader[..reader.len() - 1], "x".repeat(600));
        for field in [shorter, &format!("{reader}x"), &format!("Bearer {longer}")] {
            assert_eq!(refused(field), AuthError::UnknownToken, "{field}");
        }
        let mut twice = authorization(&reader);
        twice.append(AUTHORIZATION, HeaderValue::from_str(&reader).unwrap());
        assert_eq!(tokens.authenticate(&twice, Role::Read), Err(AuthError::NoToken));
        assert_eq!(tokens.authenticate(&HeaderMap::new(), Role::Read), Err(AuthError::NoToken));
    }

    #[test]
    fn replaced_tokens_are_refused() {
        let (tokens, reader, _) = tokens();
        tokens.replace([(create_token().unwrap().digest, Role::Read)]);
        assert_eq!(
            tokens.authenticate(&authorization(&reader), Role::Read),
            Err(AuthError::UnknownToken)
        );
    }

    #[test]
    fn a_non_loopback_listener_needs_tokens_or_explicit_permission() {
        let (none, some) = (Tokens::default(), tokens().0);
        let (loopback, public) =
            ("127.0.0.1:6070".parse().unwrap(), "0.0.0.0:6070".parse().unwrap());
        let check = |address, tokens, setting| check_address("admin", address, tokens, setting);
        assert!(check(loopback, &none, Unauthenticated::Refused).is_ok());
        assert!(check(public, &some, Unauthenticated::Refused).is_ok());
        assert!(check(public, &none, Unauthenticated::Allowed).is_ok());
        let error = check(public, &none, Unauthenticated::Refused).unwrap_err().to_string();
        for word in ["0.0.0.0:6070", "tidegate key", "write_tokens", "allow_unauthenticated"] {
            assert!(error.contains(word), "{error}");
        }
    }
}
