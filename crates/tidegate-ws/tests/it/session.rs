//! Who connects in these tests, on which store.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate::{Engine, Limiter, MemoryStore, Policy, now_or_never};
use tidegate_ws::{Connection, Identity, IngressContext, KeyParts, MessageDecision, RefusalReason};

/// What the application of these tests knows of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub(crate) tenant: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) tier: &'static str,
    pub(crate) room: String,
}

impl Session {
    pub(crate) fn of(user: &str) -> Self {
        Self { user: Some(user.into()), ..Self::default() }
    }
}

impl Identity for Session {
    fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

/// A store whose clock the test moves.
pub(crate) struct Bench {
    pub(crate) clock: ManualClock,
    pub(crate) engine: Engine,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_000));
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        Self { clock, engine: Engine::on(Arc::new(store)) }
    }

    pub(crate) fn limiter(&self, name: &str, rate: u64, capacity: u64) -> Limiter {
        let policy = Policy::per_second(rate).capacity(capacity).build().unwrap();
        self.engine.limiter(name, policy).unwrap()
    }

    pub(crate) fn limiter_of(&self, name: &str, policy: Policy) -> Limiter {
        self.engine.limiter(name, policy).unwrap()
    }

    /// How many buckets there are.
    pub(crate) fn buckets(&self) -> usize {
        self.engine.store().local().unwrap().len()
    }
}

/// The key of a rule for each connection.
pub(crate) fn of_connection<'a>(context: &IngressContext<'a, Session>) -> KeyParts<'a> {
    context.connection_key()
}

pub(crate) fn frame(message_type: &str) -> String {
    format!(r#"{{"type":"{message_type}"}}"#)
}

/// Sends a message that must be decided at once.
pub(crate) fn send<D: Identity>(
    connection: &mut Connection<D>,
    message_type: &str,
) -> MessageDecision {
    now_or_never(connection.ingress(frame(message_type))).unwrap().unwrap()
}

/// Whether a message is accepted; it is handled at once.
pub(crate) fn passes<D: Identity>(connection: &mut Connection<D>, message_type: &str) -> bool {
    matches!(send(connection, message_type), MessageDecision::Accepted(_))
}

/// Why a message is refused.
pub(crate) fn refused<D: Identity>(
    connection: &mut Connection<D>,
    message_type: &str,
) -> RefusalReason {
    match send(connection, message_type) {
        MessageDecision::Refused(refusal) => refusal.reason(),
        MessageDecision::Accepted(_) => panic!("{message_type} was accepted"),
    }
}

/// How many messages pass in a row, of at most so many.
pub(crate) fn passing<D: Identity>(
    connection: &mut Connection<D>,
    message_type: &str,
    most: usize,
) -> usize {
    (0..most).take_while(|_| passes(connection, message_type)).count()
}
