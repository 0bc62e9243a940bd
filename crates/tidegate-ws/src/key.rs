//! Keys that messages are charged to.
//!
//! A key is a list of parts, and different lists never yield the same text. So key functions need
//! not care about separators.
//!
//! Tenants and users have names that they may have chosen themselves, and the same position of a
//! key can hold an address, `anon` or a connection. A name that could be mistaken for one of these
//! is written after an empty part, which is never there otherwise: `rl:public::203.0.113.9:PING` is
//! the user `203.0.113.9`, and `rl:public:203.0.113.9:PING` the client at that address.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::IpAddr;

use smallvec::SmallVec;
use tidegate::KeyBuf;

use crate::context::{Identity, IngressContext};

/// Tenant of connections without one.
const NO_TENANT: &str = "public";
/// User of connections without one.
const NO_USER: &str = "anon";
/// Part before the id of a connection.
const CONNECTION: &str = "conn";
/// Part before an address, in keys of applications.
const ADDRESS: &str = "ip";

/// A key, as the list of its parts.
///
/// Its text has the parts joined by `:`, with `:` and `%` inside a part escaped, as by
/// [`KeyBuf::from_parts`], but without an allocation until [`to_key`](Self::to_key).
///
/// ```
/// use tidegate_ws::KeyParts;
/// assert_eq!(KeyParts::from(["rl", "room", "a:b"]).to_string(), "rl:room:a%3Ab");
/// assert_eq!(KeyParts::from(["rl"]).and(42.to_string()).to_string(), "rl:42");
/// ```
#[derive(Clone)]
pub struct KeyParts<'a> {
    parts: SmallVec<[Cow<'a, str>; 5]>,
    is_connection_key: bool,
}

impl<'a> KeyParts<'a> {
    /// Appends a part.
    #[must_use]
    pub fn and(mut self, part: impl Into<Cow<'a, str>>) -> Self {
        self.parts.push(part.into());
        self
    }

    /// Converts to a key for calling a limiter directly.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// use tidegate_ws::KeyParts;
    /// let limiter = Limiter::new(Policy::per_second(5).build()?);
    /// assert!(limiter.take(&KeyParts::from(["rl", "room", "lobby"]).to_key()).now()?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_key(&self) -> KeyBuf {
        KeyBuf::from_parts(self.parts.iter().map(Cow::as_ref))
    }

    /// Appends a name, after an empty part if it is reserved.
    fn and_name(self, name: &'a str, is_reserved: bool) -> Self {
        if is_reserved { self.and("").and(name) } else { self.and(name) }
    }

    /// Marks a key that contains the connection id and so belongs to the connection alone.
    pub(crate) const fn mark_connection_key(mut self) -> Self {
        self.is_connection_key = true;
        self
    }

    pub(crate) const fn is_connection_key(&self) -> bool {
        self.is_connection_key
    }
}

impl<'a, T: Into<Cow<'a, str>>, const N: usize> From<[T; N]> for KeyParts<'a> {
    fn from(parts: [T; N]) -> Self {
        Self { parts: parts.into_iter().map(Into::into).collect(), is_connection_key: false }
    }
}

impl fmt::Display for KeyParts<'_> {
    /// Writes the text of the key. It may identify people: use it for stores, not for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                f.write_char(':')?;
            }
            for c in part.chars() {
                match c {
                    ':' => f.write_str("%3A")?,
                    '%' => f.write_str("%25")?,
                    c => f.write_char(c)?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for KeyParts<'_> {
    /// Shows only the number of parts, because keys may identify people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyParts(<{} parts>)", self.parts.len())
    }
}

/// `rl:{tenant}:{user}:{type}`: no message type can starve another one of the same user.
///
/// Without a tenant it is `public`, without a user `anon`, so all anonymous clients of a tenant
/// share their buckets. Use it for authenticated connections; the default of a
/// [`MessageRule`](crate::MessageRule) separates anonymous clients.
///
/// A user who is named like an address, `anon` or `conn`, or has an empty name, is written after an
/// empty part, and so is a tenant that is named `conn` or `ip`, or has an empty name. So no name
/// yields the key of an anonymous client, of an address or of a connection. The tenant `public` is
/// that of connections without a tenant: reserve it if tenants choose their names.
///
/// ```
/// use tidegate_ws::{Gate, Identity, Peer, key_per_user_per_type};
///
/// struct User(Option<&'static str>);
/// impl Identity for User {
///     fn user(&self) -> Option<&str> {
///         self.0
///     }
/// }
///
/// let gate = Gate::for_types(["PING"]).build()?;
/// let key = |user| {
///     key_per_user_per_type(&gate.connect(Peer::new(User(user))).context("PING")).to_string()
/// };
/// assert_eq!(key(None), "rl:public:anon:PING");
/// assert_eq!(key(Some("alice")), "rl:public:alice:PING");
/// assert_eq!(key(Some("anon")), "rl:public::anon:PING");
/// assert_eq!(key(Some("203.0.113.9")), "rl:public::203.0.113.9:PING");
/// # Ok::<(), tidegate_ws::BuildError>(())
/// ```
#[must_use]
pub fn key_per_user_per_type<'a, D: Identity>(context: &IngressContext<'a, D>) -> KeyParts<'a> {
    per_user_key(context).and(context.message_type())
}

/// `rl:{tenant}:{user}`: one bucket for all message types of a user, with the same defaults as
/// [`key_per_user_per_type`].
///
/// For applications with more than a hundred types. Costs can weight types against each other, but
/// do not isolate them: a user who spends everything on one type has nothing left for the others.
///
/// ```
/// use tidegate_ws::{Gate, Peer, per_user_key};
/// let gate = Gate::for_any_type().build()?;
/// let connection = gate.connect(Peer::new(()));
/// assert_eq!(per_user_key(&connection.context("PING")).to_string(), "rl:public:anon");
/// # Ok::<(), tidegate_ws::BuildError>(())
/// ```
#[must_use]
pub fn per_user_key<'a, D: Identity>(context: &IngressContext<'a, D>) -> KeyParts<'a> {
    user_or(context, NO_USER)
}

/// `rl:{tenant}:{user}:{type}`, with the client address in place of an unknown user, and `anon` if
/// the address is unknown too.
///
/// ```
/// use tidegate_ws::{Gate, Peer, key_per_user_or_ip_per_type};
/// let gate = Gate::for_types(["PING"]).build()?;
/// let connection = gate.connect(Peer::new(()).ip("203.0.113.9".parse()?));
/// let key = key_per_user_or_ip_per_type(&connection.context("PING")).to_string();
/// assert_eq!(key, "rl:public:203.0.113.9:PING");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn key_per_user_or_ip_per_type<'a, D: Identity>(
    context: &IngressContext<'a, D>,
) -> KeyParts<'a> {
    user_or(context, context.ip().unwrap_or(NO_USER)).and(context.message_type())
}

/// Default key of a rule: [`key_per_user_or_ip_per_type`], but a client without user and address
/// gets a bucket for its connection, `rl:{tenant}:conn:{id}:{type}`.
pub(crate) fn default_key<'a, D: Identity>(context: &IngressContext<'a, D>) -> KeyParts<'a> {
    if context.user().or(context.ip()).is_some() {
        return key_per_user_or_ip_per_type(context);
    }
    let key = tenant(context).and(CONNECTION).and(context.id()).and(context.message_type());
    key.mark_connection_key()
}

/// `rl:conn:{id}`: the key of a single connection.
pub(crate) fn connection_key(id: &str) -> KeyParts<'_> {
    KeyParts::from(["rl", CONNECTION, id]).mark_connection_key()
}

/// `rl:{tenant}:{user}`, with `otherwise` in place of an unknown user.
fn user_or<'a, D: Identity>(context: &IngressContext<'a, D>, otherwise: &'a str) -> KeyParts<'a> {
    let key = tenant(context);
    match context.user() {
        Some(user) => key.and_name(user, is_reserved_user(user)),
        None => key.and(otherwise),
    }
}

fn tenant<'a, D: Identity>(context: &IngressContext<'a, D>) -> KeyParts<'a> {
    let tenant = context.tenant().unwrap_or(NO_TENANT);
    KeyParts::from(["rl"]).and_name(tenant, matches!(tenant, "" | CONNECTION | ADDRESS))
}

/// Returns whether a user has the name of what the same position can hold otherwise.
fn is_reserved_user(user: &str) -> bool {
    matches!(user, "" | NO_USER | CONNECTION) || user.parse::<IpAddr>().is_ok()
}
