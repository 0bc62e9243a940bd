//! What is known of a message before it has been validated.
//!
//! Key, cost and selection functions see this and nothing else. The payload is not in it, so that
//! no limit can come to depend on bytes that nobody has checked yet.

use std::fmt;

use tidegate_core::WallTime;

use crate::key::{KeyParts, connection_key};

/// Who is at the other end of a connection, as the application knows it.
///
/// Both answers default to "unknown", so data without an identity needs no code:
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
    /// The tenant, if there is one.
    fn tenant(&self) -> Option<&str> {
        None
    }

    /// The user, once authenticated.
    fn user(&self) -> Option<&str> {
        None
    }
}

impl Identity for () {}

/// One message on its way in: its type and its connection, without its payload.
///
/// [`Connection::context`](crate::Connection::context) makes one by hand, for limits that a
/// handler applies by itself.
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

    /// The type of the message; [`UNKNOWN_TYPE`](crate::UNKNOWN_TYPE) if it is not one that the
    /// gate knows.
    #[must_use]
    pub const fn message_type(&self) -> &'a str {
        self.message_type
    }

    /// The id of the connection.
    #[must_use]
    pub const fn id(&self) -> &'a str {
        self.id
    }

    /// The address of the client, as [`Peer::ip`](crate::Peer::ip) folded it.
    #[must_use]
    pub const fn ip(&self) -> Option<&'a str> {
        self.ip
    }

    /// What the application knows of the connection.
    #[must_use]
    pub const fn data(&self) -> &'a D {
        self.data
    }

    /// When the message arrived, by the clock of the store that decides; never by the client's.
    #[must_use]
    pub const fn received_at(&self) -> WallTime {
        self.received_at
    }

    /// A key of this connection alone: `rl:conn:{id}`, to which parts can be added. Buckets under
    /// such keys are forgotten when the connection is dropped, up to
    /// [`MAX_CONNECTION_KEYS`](crate::MAX_CONNECTION_KEYS) of them; see
    /// [`Connection`](crate::Connection) for what can be left behind.
    ///
    /// The text is fixed, and [`per_user_key`](crate::per_user_key) gives the same one to a user
    /// with the name `{id}` of a tenant with the name `conn`. If there can be such a tenant, let no
    /// limiter serve both kinds of keys: buckets of different limiters are never the same.
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
    /// The tenant, if the application knows one.
    #[must_use]
    pub fn tenant(&self) -> Option<&'a str> {
        self.data.tenant()
    }

    /// The user, if the application knows one.
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
    /// Whom it is about is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IngressContext")
            .field("received_at", &self.received_at)
            .finish_non_exhaustive()
    }
}
