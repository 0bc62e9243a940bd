//! Sessions, stores and helpers shared by the tests.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate::{Engine, Limiter, MemoryStore, Policy, now_or_never};
use tidegate_ws::{Connection, Identity, IngressContext, KeyParts, MessageDecision, RefusalReason};

/// Application data of a connection.
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

/// An engine on a local store with a manual clock.
pub(crate) struct Fixture {
    pub(crate) clock: ManualClock,
    pub(crate) engine: Engine,
}

impl Fixture {
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

    pub(crate) fn limiter_with(&self, name: &str, policy: Policy) -> Limiter {
        self.engine.limiter(name, policy).unwrap()
    }

    /// Number of buckets in the store.
    pub(crate) fn buckets(&self) -> usize {
        self.engine.store().local().unwrap().len()
    }
}

/// Key function for a bucket per connection.
pub(crate) fn connection_key<'a>(context: &IngressContext<'a, Session>) -> KeyParts<'a> {
    context.connection_key()
}

pub(crate) fn frame(message_type: &str) -> String {
    format!(r#"{{"type":"{message_type}"}}"#)
}

/// Sends a message and returns the decision, which must be ready at the first poll.
pub(crate) fn send<D: Identity>(
    connection: &mut Connection<D>,
    message_type: &str,
) -> MessageDecision {
    now_or_never(connection.ingress(frame(message_type))).unwrap().unwrap()
}

/// Sends a message and returns whether it was accepted. Its token is dropped at once.
pub(crate) fn is_accepted<D: Identity>(connection: &mut Connection<D>, message_type: &str) -> bool {
    matches!(send(connection, message_type), MessageDecision::Accepted(_))
}

/// Sends a message that must be refused and returns the reason.
pub(crate) fn refusal_reason<D: Identity>(
    connection: &mut Connection<D>,
    message_type: &str,
) -> RefusalReason {
    match send(connection, message_type) {
        MessageDecision::Refused(refusal) => refusal.reason(),
        MessageDecision::Accepted(_) => panic!("{message_type} was accepted"),
    }
}

/// Sends up to `max` messages and returns how many were accepted before the first refusal.
pub(crate) fn accepted_count<D: Identity>(
    connection: &mut Connection<D>,
    message_type: &str,
    max: usize,
) -> usize {
    (0..max).take_while(|_| is_accepted(connection, message_type)).count()
}
