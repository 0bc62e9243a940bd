//! Every level at which messages can be limited, each by a key and a policy.

use std::net::IpAddr;
use std::time::Duration;

use tidegate::Policy;
use tidegate_ws::{Connection, Gate, KeyParts, Peer, RefusalReason, Rule, per_user_key};

use crate::session::{Bench, Session, passes, passing, refused};

fn connect(gate: &Gate<Session>, user: &str) -> Connection<Session> {
    gate.connect(Peer::new(Session::of(user)))
}

#[test]
fn global_a_hundred_thousand_messages_a_second_over_all_users() {
    let bench = Bench::new();
    let rule =
        Rule::new(bench.limiter("global", 100_000, 100_000)).key(|_| KeyParts::from(["rl", "all"]));
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let mut users: Vec<_> = (0..10).map(|user| connect(&gate, &user.to_string())).collect();
    for user in &mut users {
        assert_eq!(passing(user, "SAY", 10_000), 10_000);
    }
    assert_eq!(refused(&mut users[3], "SAY"), RefusalReason::Rate);
    assert_eq!(refused(&mut connect(&gate, "new"), "SAY"), RefusalReason::Rate);
    assert_eq!(bench.buckets(), 1);
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(passing(&mut users[0], "SAY", 200), 100);
}

#[test]
fn per_user_a_hundred_messages_a_second_on_all_connections_and_types() {
    let bench = Bench::new();
    let rule = Rule::new(bench.limiter("user", 100, 100)).key(per_user_key);
    let gate = Gate::for_types(["SAY", "PING"]).limit(rule).build().unwrap();
    let (mut phone, mut desk) = (connect(&gate, "alice"), connect(&gate, "alice"));
    assert_eq!(passing(&mut phone, "SAY", 60), 60);
    assert_eq!(passing(&mut desk, "PING", 60), 40);
    assert_eq!(passing(&mut connect(&gate, "bob"), "SAY", 200), 100);
}

#[test]
fn per_address_fifty_messages_a_second() {
    let bench = Bench::new();
    let rule = Rule::new(bench.limiter("ip", 50, 50)).key(|context| {
        // Those whose address is not known are told apart by connection.
        match context.ip() {
            Some(ip) => KeyParts::from(["rl", "ip", ip, context.message_type()]),
            None => context.connection_key().and(context.message_type()),
        }
    });
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let from = |ip: &str| gate.connect(Peer::new(Session::default()).ip(ip.parse().unwrap()));
    assert_eq!(passing(&mut from("203.0.113.9"), "SAY", 30), 30);
    assert_eq!(passing(&mut from("203.0.113.9"), "SAY", 99), 20);
    assert_eq!(passing(&mut from("::ffff:203.0.113.9"), "SAY", 99), 0, "the same address");
    assert_eq!(passing(&mut from("203.0.113.10"), "SAY", 99), 50);
    // All addresses of one IPv6 network are one client.
    assert_eq!(passing(&mut from("2001:db8:0:1::1"), "SAY", 99), 50);
    assert_eq!(passing(&mut from("2001:db8:0:1:ffff::2"), "SAY", 99), 0);
    assert_eq!(passing(&mut from("2001:db8:0:2::1"), "SAY", 99), 50);
    for _ in 0..2 {
        let mut unknown = gate.connect(Peer::new(Session::default()));
        assert_eq!(passing(&mut unknown, "SAY", 99), 50);
    }
}

#[test]
fn per_connection_a_thousand_messages_in_all() {
    let bench = Bench::new();
    let ceiling = bench.limiter_of("connection", Policy::allowance(1_000).unwrap());
    let gate = Gate::for_any_type().connection_ceiling(ceiling).build().unwrap();
    let mut connection = connect(&gate, "alice");
    for number in 0..1_000 {
        assert!(passes(&mut connection, &format!("T{number}")));
    }
    assert_eq!(refused(&mut connection, "T0"), RefusalReason::ConnectionUsedUp);
    // It is a number and not a rate: time does not help.
    bench.clock.advance(Duration::from_secs(86_400));
    assert_eq!(refused(&mut connection, "new"), RefusalReason::ConnectionUsedUp);
    assert!(passes(&mut connect(&gate, "alice"), "T0"));
}

#[test]
fn per_type_a_hundred_messages_and_ten_computations_a_second() {
    let bench = Bench::new();
    let compute = Rule::new(bench.limiter("compute", 10, 10))
        .when(|context| context.message_type() == "Compute")
        .otherwise(bench.limiter("rest", 100, 100));
    let gate = Gate::for_types(["SendMessage", "Compute"]).limit(compute).build().unwrap();
    let mut connection = connect(&gate, "alice");
    assert_eq!(passing(&mut connection, "Compute", 999), 10);
    assert_eq!(passing(&mut connection, "SendMessage", 999), 100);
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(passing(&mut connection, "SendMessage", 999), 100);
    assert_eq!(passing(&mut connection, "Compute", 999), 10);
}

#[test]
fn per_handler_a_rule_for_one_route_on_top_of_the_rule_for_all() {
    let bench = Bench::new();
    let upload = Rule::new(bench.limiter("upload", 1, 2))
        .key(per_user_key)
        .when(|context| context.message_type() == "Upload");
    let all = Rule::new(bench.limiter("all", 1, 5)).key(per_user_key);
    let gate = Gate::for_types(["Upload", "SAY"]).limit(upload).limit(all).build().unwrap();
    let mut connection = connect(&gate, "alice");
    assert_eq!(passing(&mut connection, "Upload", 9), 2);
    // The refused uploads have cost nothing of what all share.
    assert_eq!(passing(&mut connection, "SAY", 9), 3);
}

#[test]
fn per_room_fifty_messages_a_second() {
    let bench = Bench::new();
    let rule = Rule::<Session>::new(bench.limiter("room", 50, 50))
        .key(|context| KeyParts::from(["rl", "room", &context.data().room]));
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let join = |user: &str, room: &str| {
        gate.connect(Peer::new(Session { room: room.into(), ..Session::of(user) }))
    };
    let (mut alice, mut bob) = (join("alice", "lobby"), join("bob", "lobby"));
    assert_eq!(passing(&mut alice, "SAY", 30), 30);
    assert_eq!(passing(&mut bob, "SAY", 99), 20);
    bob.data_mut().room = "library".into();
    assert_eq!(passing(&mut bob, "SAY", 99), 50);
}

#[test]
fn several_levels_are_charged_together_or_not_at_all() {
    let bench = Bench::new();
    let (user, room) = (bench.limiter("user", 1, 10), bench.limiter("room", 1, 3));
    let gate = Gate::for_types(["SAY"])
        .limit(user.clone())
        .limit(Rule::new(room).key(|_| KeyParts::from(["rl", "room", "lobby"])))
        .build()
        .unwrap();
    let address: IpAddr = "203.0.113.9".parse().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")).ip(address));
    assert_eq!(passing(&mut connection, "SAY", 9), 3);
    for _ in 0..20 {
        assert_eq!(refused(&mut connection, "SAY"), RefusalReason::Rate);
    }
    assert_eq!(user.peek("rl:public:alice:SAY").cost(0).now().unwrap().remaining(), 7);
}
