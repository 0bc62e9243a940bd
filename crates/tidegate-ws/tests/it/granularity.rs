//! Levels at which messages can be limited, each by a key and a policy.

use std::net::IpAddr;
use std::time::Duration;

use tidegate::Policy;
use tidegate_ws::{
    Connection, Gate, KeyParts, MessageRule, Peer, RefusalReason, key_per_user_per_type,
    per_user_key,
};

use crate::fixture::{Fixture, Session, accepted_count, is_accepted, refusal_reason};

fn connect(gate: &Gate<Session>, user: &str) -> Connection<Session> {
    gate.connect(Peer::new(Session::of(user)))
}

/// The first limit of the guides, on messages.
#[test]
fn two_hundred_at_once_and_a_hundred_per_second() {
    let fixture = Fixture::new();
    let say = fixture.limiter("say", 100, 200);
    let gate = Gate::for_types(["SAY", "PING"]).limit_by(say, key_per_user_per_type).build();
    let gate = gate.unwrap();
    let (mut alice, mut bob) = (connect(&gate, "alice"), connect(&gate, "bob"));
    assert_eq!(accepted_count(&mut alice, "SAY", 999), 200);
    assert_eq!(accepted_count(&mut alice, "PING", 999), 200);
    assert_eq!(accepted_count(&mut bob, "SAY", 999), 200);
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(accepted_count(&mut alice, "SAY", 999), 100);
}

#[test]
fn global_limit_over_all_users() {
    let fixture = Fixture::new();
    let rule = MessageRule::new(fixture.limiter("global", 100_000, 100_000))
        .key(|_| KeyParts::from(["rl", "all"]));
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let mut users: Vec<_> = (0..10).map(|user| connect(&gate, &user.to_string())).collect();
    for user in &mut users {
        assert_eq!(accepted_count(user, "SAY", 10_000), 10_000);
    }
    assert_eq!(refusal_reason(&mut users[3], "SAY"), RefusalReason::Rate);
    assert_eq!(refusal_reason(&mut connect(&gate, "new"), "SAY"), RefusalReason::Rate);
    assert_eq!(fixture.buckets(), 1);
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(accepted_count(&mut users[0], "SAY", 200), 100);
}

#[test]
fn limit_per_user_over_connections_and_types() {
    let fixture = Fixture::new();
    let rule = MessageRule::new(fixture.limiter("user", 100, 100)).key(per_user_key);
    let gate = Gate::for_types(["SAY", "PING"]).limit(rule).build().unwrap();
    let (mut phone, mut laptop) = (connect(&gate, "alice"), connect(&gate, "alice"));
    assert_eq!(accepted_count(&mut phone, "SAY", 60), 60);
    assert_eq!(accepted_count(&mut laptop, "PING", 60), 40);
    assert_eq!(accepted_count(&mut connect(&gate, "bob"), "SAY", 200), 100);
}

#[test]
fn limit_per_address() {
    let fixture = Fixture::new();
    let rule = MessageRule::new(fixture.limiter("ip", 50, 50)).key(|context| {
        // Clients without an address are separated by connection.
        match context.ip() {
            Some(ip) => KeyParts::from(["rl", "ip", ip, context.message_type()]),
            None => context.connection_key().and(context.message_type()),
        }
    });
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let from = |ip: &str| gate.connect(Peer::new(Session::default()).ip(ip.parse().unwrap()));
    assert_eq!(accepted_count(&mut from("203.0.113.9"), "SAY", 30), 30);
    assert_eq!(accepted_count(&mut from("203.0.113.9"), "SAY", 99), 20);
    assert_eq!(accepted_count(&mut from("::ffff:203.0.113.9"), "SAY", 99), 0, "the same address");
    assert_eq!(accepted_count(&mut from("203.0.113.10"), "SAY", 99), 50);
    // All addresses of one IPv6 /64 are one client.
    assert_eq!(accepted_count(&mut from("2001:db8:0:1::1"), "SAY", 99), 50);
    assert_eq!(accepted_count(&mut from("2001:db8:0:1:ffff::2"), "SAY", 99), 0);
    assert_eq!(accepted_count(&mut from("2001:db8:0:2::1"), "SAY", 99), 50);
    for _ in 0..2 {
        let mut unknown = gate.connect(Peer::new(Session::default()));
        assert_eq!(accepted_count(&mut unknown, "SAY", 99), 50);
    }
}

#[test]
fn total_limit_per_connection() {
    let fixture = Fixture::new();
    let ceiling = fixture.limiter_with("connection", Policy::allowance(1_000).unwrap());
    let gate = Gate::for_any_type().connection_ceiling(ceiling).build().unwrap();
    let mut connection = connect(&gate, "alice");
    for number in 0..1_000 {
        assert!(is_accepted(&mut connection, &format!("T{number}")));
    }
    assert_eq!(refusal_reason(&mut connection, "T0"), RefusalReason::ConnectionUsedUp);
    // An allowance does not refill with time.
    fixture.clock.advance(Duration::from_secs(86_400));
    assert_eq!(refusal_reason(&mut connection, "new"), RefusalReason::ConnectionUsedUp);
    assert!(is_accepted(&mut connect(&gate, "alice"), "T0"));
}

#[test]
fn limit_per_type() {
    let fixture = Fixture::new();
    let compute = MessageRule::new(fixture.limiter("compute", 10, 10))
        .when(|context| context.message_type() == "Compute")
        .otherwise(fixture.limiter("rest", 100, 100));
    let gate = Gate::for_types(["SendMessage", "Compute"]).limit(compute).build().unwrap();
    let mut connection = connect(&gate, "alice");
    assert_eq!(accepted_count(&mut connection, "Compute", 999), 10);
    assert_eq!(accepted_count(&mut connection, "SendMessage", 999), 100);
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(accepted_count(&mut connection, "SendMessage", 999), 100);
    assert_eq!(accepted_count(&mut connection, "Compute", 999), 10);
}

#[test]
fn rule_for_one_type_on_top_of_a_shared_rule() {
    let fixture = Fixture::new();
    let upload = MessageRule::new(fixture.limiter("upload", 1, 2))
        .key(per_user_key)
        .when(|context| context.message_type() == "Upload");
    let all = MessageRule::new(fixture.limiter("all", 1, 5)).key(per_user_key);
    let gate = Gate::for_types(["Upload", "SAY"]).limit(upload).limit(all).build().unwrap();
    let mut connection = connect(&gate, "alice");
    assert_eq!(accepted_count(&mut connection, "Upload", 9), 2);
    // Refused uploads do not spend the shared bucket.
    assert_eq!(accepted_count(&mut connection, "SAY", 9), 3);
}

#[test]
fn limit_per_room() {
    let fixture = Fixture::new();
    let rule = MessageRule::<Session>::new(fixture.limiter("room", 50, 50))
        .key(|context| KeyParts::from(["rl", "room", &context.data().room]));
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let join = |user: &str, room: &str| {
        gate.connect(Peer::new(Session { room: room.into(), ..Session::of(user) }))
    };
    let (mut alice, mut bob) = (join("alice", "lobby"), join("bob", "lobby"));
    assert_eq!(accepted_count(&mut alice, "SAY", 30), 30);
    assert_eq!(accepted_count(&mut bob, "SAY", 99), 20);
    bob.data_mut().room = "library".into();
    assert_eq!(accepted_count(&mut bob, "SAY", 99), 50);
}

#[test]
fn levels_are_charged_together_or_not_at_all() {
    let fixture = Fixture::new();
    let (user, room) = (fixture.limiter("user", 1, 10), fixture.limiter("room", 1, 3));
    let gate = Gate::for_types(["SAY"])
        .limit(user.clone())
        .limit(MessageRule::new(room).key(|_| KeyParts::from(["rl", "room", "lobby"])))
        .build()
        .unwrap();
    let address: IpAddr = "203.0.113.9".parse().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")).ip(address));
    assert_eq!(accepted_count(&mut connection, "SAY", 9), 3);
    for _ in 0..20 {
        assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
    }
    assert_eq!(user.peek("rl:public:alice:SAY").cost(0).now().unwrap().remaining(), 7);
}
