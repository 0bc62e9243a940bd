//! What a request is charged to.
//!
//! A [`KeySource`] writes a key from the [`Head`] of a request, or says that there is none; what
//! happens then is said by [`Missing`]. Sources are joined by [`all_of`] and [`first_of`].
//!
//! | source | key |
//! | --- | --- |
//! | [`header`] | the value of a field |
//! | [`bearer`], [`api_key`] | a hash of the credential, never the credential |
//! | [`client_ip`] | the IPv4 address or IPv6 prefix of the client |
//! | [`path`] | the template that the path fits, or `other` |
#![cfg_attr(feature = "axum", doc = "| [`matched_path`] | the route of axum, or `other` |")]
//! | [`constant`] | one bucket for all, by explicit choice |
//! | [`from_fn`] | whatever a function makes of the head |
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
//! Keys are no longer than a store takes: longer ones are replaced by their hash. Keys that begin
//! with `%` and a letter are ours (`%ip:` for clients without a key, `%shared:`, `%sha256:`), and
//! one from outside that begins so is replaced by its hash too, so that nobody can name theirs
//! like one of them.

mod credential;
mod joined;
mod path;
mod plain;
mod text;

pub use credential::{api_key, bearer};
pub use joined::{AllOf, FirstOf, all_of, first_of};
#[cfg(feature = "axum")]
pub use path::matched_path;
pub use path::{TemplateError, path};
pub use plain::{client_ip, constant, from_fn, header};
pub use text::KeyText;

use crate::head::Head;

/// Where keys come from. Implementations are shared by all requests.
///
/// Most are made by the functions of this module; [`from_fn`] makes one of a closure.
///
/// ```
/// use tidegate_http::Head;
/// use tidegate_http::key::{KeySource, KeyText};
///
/// /// The tenant that an authentication layer has found.
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
    /// Writes the key of a request, or part of one. `None` if the request has none; what was
    /// written is then dropped. An empty key is none.
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()>;
}

/// A key that stands in one place of a request. Made by [`header`], [`bearer`], [`api_key`],
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

/// What becomes of a request that has no key for a limit.
///
/// By default it is charged to the address of its client, so that anonymous callers do not empty
/// one bucket for each other.
///
#[cfg_attr(feature = "tower", doc = "```")]
#[cfg_attr(not(feature = "tower"), doc = "```ignore")]
/// use tidegate::{Limiter, Policy};
/// use tidegate_http::key::{self, Missing};
/// use tidegate_http::layer::Rule;
///
/// let users = Limiter::new(Policy::per_second(5).build()?);
/// let rule = Rule::new(users, key::bearer()).missing(Missing::Unauthorized);
/// # Ok::<(), tidegate::PolicyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// It is charged to its client's address, apart from keys that look like one. If that is not
    /// known either, nobody has told the layer of peers: the request is refused with status 500.
    #[default]
    ChargeClient,
    /// The limit does not apply to it. A field that stands twice is no key either, so whoever likes
    /// can have this: choose it where somebody in front has seen to keys, or another limit is left.
    Skip,
    /// It is refused with status 400. Nothing is charged for it, also by other limits of the layer:
    /// whoever sends many of these is bounded by a layer outside alone.
    BadRequest,
    /// It is refused with status 401. Nothing is charged for it, as with
    /// [`BadRequest`](Self::BadRequest).
    Unauthorized,
    /// All requests without a key share one bucket, under this name.
    Shared(String),
}

/// Why a request has no key and is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unkeyed {
    /// It should have brought one.
    BadRequest,
    /// It should have shown who it is.
    Unauthorized,
    /// It comes from an address that the server did not write down: a mistake in the program.
    NoPeer,
}

impl Missing {
    /// The key of a request by a source, or what stands in for it; `None` if the limit does not
    /// apply.
    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn key(
        &self,
        source: &dyn KeySource,
        head: &Head<'_>,
    ) -> Result<Option<KeyText>, Unkeyed> {
        match KeyText::of(source, head) {
            Some(key) => Ok(Some(key)),
            None => self.stand_in(head),
        }
    }

    /// The key in place of one that is missing; `None` if the limit does not apply.
    ///
    /// # Errors
    /// When the request is to be refused.
    pub fn stand_in(&self, head: &Head<'_>) -> Result<Option<KeyText>, Unkeyed> {
        match self {
            Self::ChargeClient => {
                let client = head.client().ok_or(Unkeyed::NoPeer)?;
                let mut key = KeyText::default();
                key.push_str("%ip:");
                key.push_network(client);
                Ok(Some(key))
            }
            Self::Skip => Ok(None),
            Self::BadRequest => Err(Unkeyed::BadRequest),
            Self::Unauthorized => Err(Unkeyed::Unauthorized),
            Self::Shared(name) => {
                let mut key = KeyText::default();
                key.push_str("%shared:");
                key.push_str(name);
                key.fold_if_long();
                Ok(Some(key))
            }
        }
    }
}
