//! Limits on a shared store beside buckets of connections in this process.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::{
    Engine, FailureRule, Limiter, MemoryStore, Policy, StoreError, StoreHandle, now_or_never,
};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};
use tidegate_ws::{
    Connection, Gate, Identity, MessageDecision, MessageRule, Peer, RefusalReason, ReplyFrame,
};

use crate::fixture::{Fixture, Session, accepted_count, connection_key, frame, refusal_reason};

/// A shared store that answers at once, and an engine on it.
fn shared(behaviour: impl Into<Behaviour>) -> (Arc<FaultyStore<MemoryStore>>, Engine) {
    let store = FaultyStore::new(MemoryStore::new(), behaviour);
    (store.clone(), Engine::on(StoreHandle::shared(store)))
}

fn allowance(engine: &Engine, name: &str, amount: u64) -> Limiter {
    engine.limiter(name, Policy::allowance(amount).unwrap()).unwrap()
}

fn remaining(limiter: &Limiter, key: &str) -> u64 {
    now_or_never(async { limiter.peek(key).cost(0).await }).unwrap().unwrap().remaining()
}

/// Messages per user on a shared store, and a ceiling on the store of a fixture.
struct Both {
    store: Arc<FaultyStore<MemoryStore>>,
    user: Limiter,
    ceiling: Limiter,
    gate: Gate<Session>,
}

impl Both {
    fn new(fixture: &Fixture, user: u64, ceiling: Policy) -> Self {
        let (store, engine) = shared(Timing::WhenPolled);
        let user = allowance(&engine, "user", user);
        let ceiling = fixture.limiter_with("ceiling", ceiling);
        let gate = Gate::for_types(["SAY"])
            .limit(user.clone())
            .connection_ceiling(ceiling.clone())
            .build()
            .unwrap();
        Self { store, user, ceiling, gate }
    }

    fn connect(&self) -> Connection<Session> {
        self.gate.connect(Peer::new(Session::of("alice")).id("c-1"))
    }
}

/// R228, R262: no call, and nothing spent on the shared store.
#[test]
fn denial_by_the_ceiling_calls_no_shared_store() {
    let fixture = Fixture::new();
    let both = Both::new(&fixture, 10, Policy::allowance(3).unwrap());
    let mut connection = both.connect();
    assert_eq!(accepted_count(&mut connection, "SAY", 9), 3);
    assert_eq!(both.store.submissions(), 3, "none for the fourth message");
    for _ in 0..20 {
        assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::ConnectionUsedUp);
    }
    assert_eq!(both.store.submissions(), 3);
    assert_eq!(remaining(&both.user, "rl:public:alice:SAY"), 7);
    assert_eq!(both.store.inner().len(), 1, "the shared store has the bucket of the user alone");
}

/// R228: what the shared store denies spends nothing of the ceiling.
#[test]
fn denial_by_the_shared_store_spends_nothing_of_the_ceiling() {
    let fixture = Fixture::new();
    let both = Both::new(&fixture, 2, Policy::allowance(9).unwrap());
    let mut connection = both.connect();
    assert_eq!(accepted_count(&mut connection, "SAY", 9), 2);
    for _ in 0..20 {
        assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::AllowanceUsedUp);
    }
    assert_eq!(remaining(&both.ceiling, "rl:conn:c-1"), 7);
}

/// A denial names the limit that denies, in whichever store it is.
#[test]
fn denial_reports_its_own_limit() {
    let fixture = Fixture::new();
    let both = Both::new(&fixture, 2, Policy::allowance(9).unwrap());
    let mut connection = both.connect();
    assert_eq!(accepted_count(&mut connection, "SAY", 9), 2);
    let decision = now_or_never(connection.ingress(frame("SAY"))).unwrap().unwrap();
    let MessageDecision::Refused(refusal) = decision else { panic!("accepted") };
    assert_eq!(refusal.exceeded().unwrap().limit, 2);
}

#[derive(Clone, Debug)]
enum Step {
    Send,
    Advance(u64),
}

proptest! {
    /// The ceiling is always in the state of one that was charged for accepted messages alone: what
    /// it gives back is exact, also while it refills.
    #[test]
    fn ceiling_is_charged_for_accepted_messages_alone(
        rate in 1..50_u64,
        capacity in 1..8_u64,
        user in 0..20_u64,
        strict in any::<bool>(),
        steps in prop::collection::vec(
            prop_oneof![3 => Just(Step::Send), 1 => (0..400_000_007_u64).prop_map(Step::Advance)], 1..60),
    ) {
        let fixture = Fixture::new();
        let policy = if strict {
            Policy::strict_window(capacity, Duration::from_millis(5_000 / rate), 1).unwrap()
        } else {
            Policy::per_second(rate).capacity(capacity).build().unwrap()
        };
        let both = Both::new(&fixture, user.max(1), policy);
        let mut connection = both.connect();
        let mut left = user.max(1);
        for step in steps {
            match step {
                Step::Advance(nanos) => fixture.clock.advance(Duration::from_nanos(nanos)),
                Step::Send => {
                    let expected = both.ceiling.peek("reference").now().unwrap();
                    let decision = now_or_never(connection.ingress(frame("SAY"))).unwrap().unwrap();
                    let accepted = matches!(decision, MessageDecision::Accepted(_));
                    prop_assert_eq!(accepted, expected.is_allowed() && left > 0);
                    if accepted {
                        left -= 1;
                        prop_assert!(both.ceiling.take("reference").now().unwrap().is_allowed());
                    }
                    let state = |key| both.ceiling.peek(key).cost(0).now().unwrap().outcomes()[0];
                    prop_assert_eq!(state("rl:conn:c-1"), state("reference"));
                }
            }
        }
        prop_assert_eq!(remaining(&both.user, "rl:public:alice:SAY"), left);
    }
}

/// A ceiling that counts slots releases its slot when the shared store denies.
#[test]
fn slot_of_the_ceiling_is_released_on_denial() {
    let fixture = Fixture::new();
    let both = Both::new(&fixture, 1, Policy::concurrency(1, None).unwrap());
    let mut connection = both.connect();
    let token = now_or_never(connection.ingress(frame("SAY"))).unwrap().unwrap();
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate, "the slot is taken");
    assert_eq!(both.store.submissions(), 1);
    drop(token);
    for _ in 0..3 {
        assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::AllowanceUsedUp);
    }
    assert_eq!(both.store.submissions(), 4);
}

/// R189: keys of connections are never on the shared store, whatever the policy, and follow changes
/// of the policy of their limiter.
#[test]
fn connection_keys_are_never_on_the_shared_store() {
    let (store, engine) = shared(Timing::Never);
    let limiter = allowance(&engine, "own", 2);
    // A ceiling on the shared store, a connection key, and the default key of an anonymous client.
    let gates = [
        Gate::<Session>::for_types(["SAY"]).connection_ceiling(limiter.clone()),
        Gate::for_types(["SAY"])
            .limit(MessageRule::<Session>::new(limiter.clone()).key(connection_key)),
        Gate::for_types(["SAY"]).limit(limiter.clone()),
    ];
    for builder in gates {
        let gate = builder.build().unwrap();
        let mut connection = gate.connect(Peer::new(Session::default()).id("c-1"));
        assert_eq!(accepted_count(&mut connection, "SAY", 9), 2, "{gate:?}");
        // A reconnected client has a new bucket, because the old one was reset.
        drop(connection);
        let mut connection = gate.connect(Peer::new(Session::default()).id("c-1"));
        assert_eq!(accepted_count(&mut connection, "SAY", 9), 2);
    }
    let gate = Gate::<Session>::for_types(["SAY"]).connection_ceiling(limiter.clone());
    let gate = gate.build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));
    assert_eq!(accepted_count(&mut connection, "SAY", 9), 2);
    limiter.reconfigure(Policy::allowance(5).unwrap(), tidegate::PolicyChange::KeepTokens).unwrap();
    assert_eq!(accepted_count(&mut connection, "SAY", 9), 3);
    assert_eq!((store.submissions(), store.inner().len()), (0, 0));
}

/// Slots under a connection key beside limits of a shared store.
#[test]
fn slots_of_connection_keys_are_released() {
    let (store, engine) = shared(Timing::Never);
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let rule = MessageRule::<Session>::new(slots).key(connection_key);
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let first = now_or_never(connection.ingress(frame("SAY"))).unwrap().unwrap();
    assert!(matches!(first, MessageDecision::Accepted(_)));
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
    drop(first);
    assert_eq!(accepted_count(&mut connection, "SAY", 3), 3);
    assert_eq!(store.submissions(), 0);
}

fn unavailable(connection: &mut Connection<Session>) -> StoreError {
    now_or_never(connection.ingress(frame("SAY"))).unwrap().unwrap_err()
}

/// Without a guard: an error, which the client sees as `UNAVAILABLE`. The ceiling stays charged, so
/// it bounds the calls to a store that is away.
#[test]
fn ceiling_bounds_messages_while_the_store_is_away() {
    let fixture = Fixture::new();
    let both = Both::new(&fixture, 10, Policy::allowance(3).unwrap());
    both.store.set(Behaviour::from(Timing::AtOnce).unavailable());
    let mut connection = both.connect();
    for _ in 0..3 {
        let error = unavailable(&mut connection);
        let refusal = connection.refuse_undecided(&error);
        assert_eq!((refusal.reason(), refusal.exceeded()), (RefusalReason::StoreUnavailable, None));
        assert_eq!(
            refusal.reply(),
            &ReplyFrame::Send(
                r#"{"type":"ERROR","payload":{"code":"UNAVAILABLE","message":"Limits are unavailable","details":{},"retryable":true,"retryAfterMs":1000}}"#.into()
            )
        );
    }
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::ConnectionUsedUp);
    assert_eq!(both.store.submissions(), 3);
}

/// A key that is too long is no failure of the store, and retrying does not help.
#[test]
fn uncharged_messages_are_not_retryable() {
    let fixture = Fixture::new();
    let gate = Gate::for_types(["SAY"]).limit(fixture.limiter("say", 1, 1)).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of(&"x".repeat(2_000))));
    let refusal = {
        let error = unavailable(&mut connection);
        connection.refuse_undecided(&error)
    };
    assert_eq!(refusal.reason(), RefusalReason::NotChargeable);
    let ReplyFrame::Send(frame) = refusal.into_reply() else { panic!("no frame") };
    assert!(
        frame.contains(r#""code":"FAILED_PRECONDITION""#) && frame.contains(r#""retryable":false"#)
    );
}

/// With a guard, the failure rule of each limit decides.
#[tokio::test]
async fn failure_rules_decide_while_the_store_is_away() {
    let away = FaultyStore::new(MemoryStore::new(), Behaviour::from(Timing::AtOnce).unavailable());
    let (sender, receiver) = std::sync::mpsc::channel();
    let engine = Engine::shared(away.clone()).unwrap();
    let limiter =
        engine.limiter("user", Policy::per_minute(1).capacity(2).build().unwrap()).unwrap();
    let gate = Gate::for_types(["SAY"])
        .limit(limiter.clone())
        .on_limit_exceeded(move |exceeded| sender.send(exceeded).unwrap())
        .build()
        .unwrap();
    let reasons = async |user: &str| {
        let mut connection = gate.connect(Peer::new(Session::of(user)));
        let mut reasons = Vec::new();
        for _ in 0..3 {
            reasons.push(match connection.ingress(frame("SAY")).await.unwrap() {
                MessageDecision::Accepted(_) => None,
                MessageDecision::Refused(refusal) => Some(refusal.reason()),
            });
        }
        reasons
    };
    assert_eq!(reasons("local").await, [None, None, Some(RefusalReason::Rate)]);
    limiter.set_failure_rule(FailureRule::Open);
    assert_eq!(reasons("open").await, [None, None, None]);
    limiter.set_failure_rule(FailureRule::Closed);
    assert_eq!(reasons("closed").await, [Some(RefusalReason::StoreUnavailable); 3]);
    drop(gate);
    assert_eq!(receiver.iter().count(), 1, "the hook is told of the exceeded share alone");
}

/// R221: a context has the type, the connection and its data, and when the message arrived.
#[test]
fn context_is_complete() {
    let gate = Gate::for_types(["SAY"]).build().unwrap();
    let peer = Peer::new(Session::of("alice")).id("c-1").ip("203.0.113.9".parse().unwrap());
    let connection = gate.connect(peer);
    let context = connection.context("SAY");
    assert_eq!(
        (context.message_type(), context.id(), context.ip(), context.data().user()),
        ("SAY", "c-1", Some("203.0.113.9"), Some("alice"))
    );
    assert!(context.received_at() > tidegate_core::WallTime::from_secs(1_600_000_000));
}
