//! What a denied message costs.

use allocation_counter::{AllocationInfo, measure};
use tidegate::{Policy, now_or_never};
use tidegate_ws::{
    Connection, Gate, MessageDecision, MessageRule, Peer, RefusalReason, ReplyFrame, per_user_key,
};

use crate::fixture::{Fixture, Session, connection_key, is_accepted, refusal_reason};

const SAY: &[u8] = br#"{"type":"SAY"}"#;

/// Sends a message that must be denied, and returns what it allocated.
fn deny(connection: &mut Connection<Session>, reason: RefusalReason) -> AllocationInfo {
    measure(|| {
        let decision = now_or_never(connection.ingress(SAY)).unwrap().unwrap();
        let MessageDecision::Refused(refusal) = decision else { panic!("accepted") };
        assert_eq!(refusal.reason(), reason);
        let ReplyFrame::Send(frame) = refusal.into_reply() else { panic!("no reply") };
        std::hint::black_box(frame);
    })
}

/// R262: a message denied by a limit allocates its reply and nothing else. With several limits on
/// one store, the engine also lists their charges, and forgets the list before the reply.
#[test]
fn denied_message_allocates_only_its_reply() {
    let fixture = Fixture::new();
    let rule = MessageRule::new(fixture.limiter("user", 1, 3)).key(per_user_key);
    let own = MessageRule::new(fixture.limiter_with("own", Policy::allowance(3).unwrap()));
    let say = || Gate::for_types(["SAY"]);
    let ceiling = fixture.limiter("ceiling", 1, 1_000);
    for (gate, count) in [
        (say().limit(fixture.limiter("say", 1, 3)), 1),
        (say().limit(own.key(connection_key)), 1),
        (say().limit(rule).connection_ceiling(ceiling), 2),
    ] {
        let gate = gate.on_limit_exceeded(|_| {}).build().unwrap();
        let mut connection = gate.connect(Peer::new(Session::of("alice")));
        while is_accepted(&mut connection, "SAY") {}
        let reason = refusal_reason(&mut connection, "SAY");
        for _ in 0..50 {
            let allocated = deny(&mut connection, reason);
            assert_eq!((allocated.count_total, allocated.count_current), (count, 0), "{gate:?}");
            assert_eq!(allocated.count_max, 1, "{gate:?}");
        }
    }
}

/// R262: nothing is kept for a key whose message was denied: neither a bucket nor an entry of its
/// connection.
#[test]
fn denied_message_leaves_no_state() {
    let fixture = Fixture::new();
    let rule = || MessageRule::<Session>::new(fixture.limiter("say", 1, 3));
    for rule in [
        rule(),
        rule().key(connection_key),
        rule().key(|context| context.connection_key().and(context.data().room.as_str())),
    ] {
        let gate = Gate::for_types(["SAY"]).limit(rule.cost(|_| 4)).build().unwrap();
        let mut connection = gate.connect(Peer::new(Session::default()));
        // The buffers of the connection grow to the size of its longest key.
        connection.data_mut().room = "room-000".into();
        deny(&mut connection, RefusalReason::AboveCapacity);
        for room in 1..100 {
            connection.data_mut().room = format!("room-{room:03}");
            let allocated = deny(&mut connection, RefusalReason::AboveCapacity);
            assert_eq!((allocated.count_total, allocated.count_current), (1, 0), "room {room}");
        }
    }
    assert_eq!(fixture.buckets(), 0);
}
