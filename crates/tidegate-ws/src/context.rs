//! What is known about a message before it is validated.
//!
//! Key, cost and condition functions see only this. It does not contain the payload, so that no
//! limit can depend on unvalidated bytes.

use std::fmt;

use tidegate_core::WallTime;

use crate::key::{KeyParts, connection_key};

/// The user and tenant of a connection, as known to the application.
///
/// Both default to unknown, so data without an identity needs no code:
///
/// ```
/// use tidegate_ws::Identity;
///
/// struct Session {
///     user: Option<String>,
/// }
///
/// impl Identity for Session {
///     fn user(&self) -> Option<&str> {
///         self.user.as_deref()
///     }
/// }
///
/// let session = Session { user: Some("alice".into()) };
/// assert_eq!((session.tenant(), session.user()), (None, Some("alice")));
/// ```
pub trait Identity: 'static {
    /// Returns the tenant, if there is one.
    fn tenant(&self) -> Option<&str> {
        None
    }

    /// Returns the user, once authenticated.
    fn user(&self) -> Option<&str> {
        None
    }
}

impl Identity for () {}

/// An incoming message: its type and its connection, without its payload.
///
/// Key, cost and condition functions cannot reach the payload, because it is not validated yet.
///
/// [`Connection::context`](crate::Connection::context) creates one directly, for limits that a
/// handler checks itself.
///
/// ```
/// use tidegate_ws::{Gate, Peer, key_per_user_per_type};
/// let gate = Gate::for_types(["PING"]).build()?;
/// let connection = gate.connect(Peer::new(()).id("c-1"));
/// let context = connection.context("PING");
/// assert_eq!((context.message_type(), context.id(), context.ip()), ("PING", "c-1", None));
/// assert_eq!(key_per_user_per_type(&context).to_string(), "rl:public:anon:PING");
/// # Ok::<(), tidegate_ws::BuildError>(())
/// ```
pub struct IngressContext<'a, D> {
    message_type: &'a str,
    id: &'a str,
    ip: Option<&'a str>,
    data: &'a D,
    received_at: WallTime,
}

impl<'a, D> IngressContext<'a, D> {
    pub(crate) const fn new(
        message_type: &'a str,
        id: &'a str,
        ip: Option<&'a str>,
        data: &'a D,
        received_at: WallTime,
    ) -> Self {
        Self { message_type, id, ip, data, received_at }
    }

    /// Returns the message type; [`UNKNOWN_TYPE`](crate::UNKNOWN_TYPE) if the gate does not know
    /// it.
    #[must_use]
    pub const fn message_type(&self) -> &'a str {
        self.message_type
    }

    /// Returns the id of the connection.
    #[must_use]
    pub const fn id(&self) -> &'a str {
        self.id
    }

    /// Returns the client address, truncated as by [`Peer::ip`](crate::Peer::ip).
    #[must_use]
    pub const fn ip(&self) -> Option<&'a str> {
        self.ip
    }

    /// Returns the application's data of the connection.
    #[must_use]
    pub const fn data(&self) -> &'a D {
        self.data
    }

    /// Returns when the message arrived, by the clock of the store, never by the client's.
    #[must_use]
    pub const fn received_at(&self) -> WallTime {
        self.received_at
    }

    /// Returns a key for this connection alone: `rl:conn:{id}`, to which parts can be added.
    /// Such buckets are always in this process, even under limits of a shared store, and are reset
    /// when the connection is dropped; see [`Connection`](crate::Connection).
    ///
    /// ```
    /// use tidegate_ws::{Gate, Peer};
    /// let gate = Gate::for_types(["PING"]).build()?;
    /// let connection = gate.connect(Peer::new(()).id("c-1"));
    /// let context = connection.context("PING");
    /// let key = context.connection_key().and(context.message_type());
    /// assert_eq!(key.to_string(), "rl:conn:c-1:PING");
    /// # Ok::<(), tidegate_ws::BuildError>(())
    /// ```
    #[must_use]
    pub fn connection_key(&self) -> KeyParts<'a> {
        connection_key(self.id)
    }
}

impl<'a, D: Identity> IngressContext<'a, D> {
    /// Returns the tenant, if the application knows one.
    #[must_use]
    pub fn tenant(&self) -> Option<&'a str> {
        self.data.tenant()
    }

    /// Returns the user, if the application knows one.
    #[must_use]
    pub fn user(&self) -> Option<&'a str> {
        self.data.user()
    }
}

impl<D> Clone for IngressContext<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for IngressContext<'_, D> {}

impl<D> fmt::Debug for IngressContext<'_, D> {
    /// Hides everything that may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IngressContext")
            .field("received_at", &self.received_at)
            .finish_non_exhaustive()
    }
}
