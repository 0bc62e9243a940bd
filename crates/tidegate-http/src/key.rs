//! Keys that a request is charged to.
//!
//! A [`KeySource`] writes a key from the [`Head`] of a request, or reports that there is none;
//! [`MissingKey`] decides what happens then. [`all_of`] and [`first_of`] combine sources.
//!
//! | source | key |
//! | --- | --- |
//! | [`header`] | the value of a field |
//! | [`bearer`], [`api_key`] | a hash of the credential, never the credential |
//! | [`client_ip`] | the IPv4 address or IPv6 prefix of the client |
//! | [`path`] | the template that the path fits, or `other` |
#![cfg_attr(feature = "axum", doc = "| [`matched_path`] | the route of axum, or `other` |")]
//! | [`constant`] | one bucket for all, by explicit choice |
//! | [`from_fn`] | the result of a function of the head |
//!
//! ```
//! use http::Request;
//! use tidegate_http::Head;
//! use tidegate_http::identity::ClientAddress;
//! use tidegate_http::key::{self, KeyText};
//!
//! let source = key::all_of().and(key::constant("v1")).and(key::header("x-user"));
//! let request = Request::get("/").header("x-user", "a:b").body(())?;
//! let clients = ClientAddress::peer();
//! let key = KeyText::of(&source, &Head::of(&request, &clients)).unwrap();
//! assert_eq!(key.as_str(), "v1:a%3Ab");
//! # Ok::<(), http::Error>(())
//! ```
//!
//! Keys never exceed the maximum length of a store: longer ones are replaced by their hash. Keys
//! that begin with `%` and a letter are reserved (`%ip:` for clients without a key, `%shared:`,
//! `%sha256:`). A key from outside that begins like this is hashed too, so that no caller can forge
//! a reserved key.

mod combined;
mod credential;
mod path;
mod plain;
mod text;

pub use combined::{AllOf, FirstOf, all_of, first_of};
pub use credential::{api_key, bearer};
#[cfg(feature = "axum")]
pub use path::matched_path;
pub use path::{TemplateError, path};
pub use plain::{client_ip, constant, from_fn, header};
pub use text::KeyText;

use crate::head::Head;

/// Source of keys. One instance serves all requests.
///
/// Most are made by the functions of this module; [`from_fn`] makes one from a closure.
///
/// ```
/// use tidegate_http::Head;
/// use tidegate_http::key::{KeySource, KeyText};
///
/// /// The tenant found by an authentication layer.
/// #[derive(Clone)]
/// struct Tenant(String);
/// struct ByTenant;
///
/// impl KeySource for ByTenant {
///     fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
///         key.push_str(&head.extensions().get::<Tenant>()?.0);
///         Some(())
///     }
/// }
/// ```
pub trait KeySource: Send + Sync {
    /// Writes the key of a request, or part of one. Returns `None` if the request has none;
    /// anything written is then discarded. An empty key counts as none.
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()>;
}

/// A key read from one part of a request. Made by [`header`], [`bearer`], [`api_key`],
/// [`client_ip`], [`path`] and [`constant`].
///
/// ```
/// use tidegate_http::key::{self, RequestKey};
/// fn by_organization() -> RequestKey {
///     key::header("x-org")
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RequestKey(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Header(plain::Header),
    Credential(credential::Credential),
    ClientIp(plain::ClientIp),
    Path(path::Path),
    #[cfg(feature = "axum")]
    MatchedRoute(path::MatchedRoute),
    Constant(plain::Constant),
}

impl KeySource for RequestKey {
    #[inline]
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        match &self.0 {
            Kind::Header(source) => source.write(head, key),
            Kind::Credential(source) => source.write(head, key),
            Kind::ClientIp(source) => source.write(head, key),
            Kind::Path(source) => source.write(head, key),
            #[cfg(feature = "axum")]
            Kind::MatchedRoute(source) => source.write(head, key),
            Kind::Constant(source) => source.write(head, key),
        }
    }
}

impl<K: KeySource + ?Sized> KeySource for Box<K> {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        (**self).write(head, key)
    }
}

impl<K: KeySource + ?Sized> KeySource for std::sync::Arc<K> {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        (**self).write(head, key)
    }
}

/// What to do with a request that has no key for a limit.
///
/// The default charges it to its client address, so that anonymous callers do not share one bucket.
///
#[cfg_attr(feature = "tower", doc = "```")]
#[cfg_attr(not(feature = "tower"), doc = "```ignore")]
/// use tidegate::{Limiter, Policy};
/// use tidegate_http::key::{self, MissingKey};
/// use tidegate_http::layer::LimitRule;
///
/// let users = Limiter::new(Policy::per_second(5).build()?);
/// let rule = LimitRule::new(users, key::bearer()).missing(MissingKey::Unauthorized);
/// # Ok::<(), tidegate::PolicyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// Charge its client address. Such keys never collide with other keys that look like an
    /// address. If the address is unknown too, the server does not report peer addresses, and the
    /// request is refused with status 500.
    #[default]
    ChargeClient,
    /// Do not apply the limit. A repeated header field counts as no key, so any caller can get
    /// this: choose it only if a proxy or an outer layer guarantees the key, or if another limit
    /// applies.
    Skip,
    /// Refuse with status 400. The other limits of the layer charge nothing for it either, so only
    /// an outer layer can bound the rate of such requests.
    BadRequest,
    /// Refuse with status 401. Nothing is charged, as with [`BadRequest`](Self::BadRequest).
    Unauthorized,
    /// Charge one bucket of this name that all requests without a key share.
    Shared(String),
}

/// Why a request without a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKeyError {
    /// The key is required ([`MissingKey::BadRequest`]).
    BadRequest,
    /// A credential is required ([`MissingKey::Unauthorized`]).
    Unauthorized,
    /// The server did not record the peer address: a configuration error of the program.
    NoPeer,
}

impl MissingKey {
    /// Returns the key of a request, or its replacement if the source has none. `None` if the limit
    /// does not apply.
    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn key(
        &self,
        source: &dyn KeySource,
        head: &Head<'_>,
    ) -> Result<Option<KeyText>, MissingKeyError> {
        match KeyText::of(source, head) {
            Some(key) => Ok(Some(key)),
            None => self.fallback_key(head),
        }
    }

    /// Returns the key to charge in place of a missing one, or `None` if the limit does not apply.
    ///
    /// # Errors
    /// Returns an error if the request must be refused.
    pub fn fallback_key(&self, head: &Head<'_>) -> Result<Option<KeyText>, MissingKeyError> {
        match self {
            Self::ChargeClient => {
                let client = head.client().ok_or(MissingKeyError::NoPeer)?;
                let mut key = KeyText::default();
                key.push_str("%ip:");
                key.push_network(client);
                Ok(Some(key))
            }
            Self::Skip => Ok(None),
            Self::BadRequest => Err(MissingKeyError::BadRequest),
            Self::Unauthorized => Err(MissingKeyError::Unauthorized),
            Self::Shared(name) => {
                let mut key = KeyText::default();
                key.push_str("%shared:");
                key.push_str(name);
                key.hash_if_long();
                Ok(Some(key))
            }
        }
    }
}
