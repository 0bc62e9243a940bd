//! Keys: exact texts, and no unintended sharing of buckets.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use proptest::prelude::*;
use tidegate::{KeyBuf, Limiter, Policy, now_or_never};
use tidegate_ws::{
    ClientAddress, Connection, Gate, IngressContext, KeyParts, MessageRule, Peer, RefusalReason,
    key_per_user_or_ip_per_type, key_per_user_per_type, per_user_key,
};

use crate::fixture::{
    Fixture, Session, accepted_count, connection_key, is_accepted, refusal_reason,
};

fn connect(tenant: Option<&str>, user: Option<&str>, ip: Option<&str>) -> Connection<Session> {
    let session = Session {
        tenant: tenant.map(Into::into),
        user: user.map(Into::into),
        ..Session::default()
    };
    let peer = Peer::new(session).id("c-1");
    let peer = match ip {
        Some(ip) => peer.ip(ip.parse().unwrap()),
        None => peer,
    };
    Gate::for_types(["PING"]).build().unwrap().connect(peer)
}

#[test]
fn key_functions_yield_the_documented_texts() {
    let (anonymous, ip) = (connect(None, None, None), connect(None, None, Some("203.0.113.9")));
    let user = connect(Some("acme"), Some("alice"), Some("203.0.113.9"));
    let texts = |connection: &Connection<Session>| {
        let context = connection.context("PING");
        [
            key_per_user_per_type(&context).to_string(),
            per_user_key(&context).to_string(),
            key_per_user_or_ip_per_type(&context).to_string(),
        ]
    };
    assert_eq!(texts(&anonymous), ["rl:public:anon:PING", "rl:public:anon", "rl:public:anon:PING"]);
    assert_eq!(texts(&ip), ["rl:public:anon:PING", "rl:public:anon", "rl:public:203.0.113.9:PING"]);
    assert_eq!(texts(&user), ["rl:acme:alice:PING", "rl:acme:alice", "rl:acme:alice:PING"]);
}

/// Returns which of the proposed keys a rule with the default key charges.
fn charged(peer: Peer<Session>, proposed: &[&str]) -> Vec<String> {
    let fixture = Fixture::new();
    let limiter = fixture.limiter("say", 1, 5);
    let gate = Gate::for_types(["PING"]).limit(limiter.clone()).build().unwrap();
    let mut connection = gate.connect(peer);
    assert!(is_accepted(&mut connection, "PING"));
    assert_eq!(fixture.buckets(), 1);
    let is_charged = |key: &&&str| limiter.peek(**key).cost(0).now().unwrap().remaining() == 4;
    proposed.iter().filter(is_charged).map(ToString::to_string).collect()
}

#[test]
fn default_key_is_user_then_address_then_connection() {
    let proposed = [
        "rl:public:alice:PING",
        "rl:public:203.0.113.9:PING",
        "rl:public:anon:PING",
        "rl:public:conn:c-1:PING",
    ];
    let address = "203.0.113.9".parse().unwrap();
    let user = Peer::new(Session::of("alice")).ip(address).id("c-1");
    assert_eq!(charged(user, &proposed), ["rl:public:alice:PING"]);
    let ip = Peer::new(Session::default()).ip(address).id("c-1");
    assert_eq!(charged(ip, &proposed), ["rl:public:203.0.113.9:PING"]);
    let anonymous = Peer::new(Session::default()).id("c-1");
    assert_eq!(charged(anonymous, &proposed), ["rl:public:conn:c-1:PING"]);
}

#[test]
fn anonymous_clients_are_separate_by_default() {
    let fixture = Fixture::new();
    let separate = Gate::for_types(["PING"]).limit(fixture.limiter("say", 1, 2)).build().unwrap();
    let mut first = separate.connect(Peer::new(Session::default()));
    assert_eq!(accepted_count(&mut first, "PING", 99), 2);
    assert_eq!(accepted_count(&mut separate.connect(Peer::new(Session::default())), "PING", 99), 2);
    // No user name yields the bucket of a connection.
    let id = first.id().as_str().to_owned();
    for name in [format!("conn:{id}"), format!("conn%3A{id}"), id] {
        let mut user = separate.connect(Peer::new(Session::of(&name)));
        assert_eq!(accepted_count(&mut user, "PING", 99), 2, "{name}");
    }

    let chosen = MessageRule::new(fixture.limiter("shared", 1, 2)).key(key_per_user_or_ip_per_type);
    let shared = Gate::for_types(["PING"]).limit(chosen).build().unwrap();
    assert_eq!(accepted_count(&mut shared.connect(Peer::new(Session::default())), "PING", 99), 2);
    assert_eq!(accepted_count(&mut shared.connect(Peer::new(Session::default())), "PING", 99), 0);
}

#[test]
fn custom_key_functions_work() {
    type Form = for<'a> fn(&IngressContext<'a, Session>) -> KeyParts<'a>;
    let forms: [(Form, &str); 3] = [
        (|context| context.connection_key().and(context.message_type()), "rl:conn:c-1:PING"),
        (
            |context| {
                let ip = context.ip().unwrap_or("none");
                KeyParts::from(["rl", "ip", ip, context.message_type()])
            },
            "rl:ip:203.0.113.9:PING",
        ),
        (
            |context| {
                KeyParts::from(["rl", context.data().tier]).and(context.user().unwrap_or("-"))
            },
            "rl:gold:alice",
        ),
    ];
    for (form, text) in forms {
        let fixture = Fixture::new();
        let limiter = fixture.limiter("say", 1, 5);
        let gate = Gate::for_types(["PING"])
            .limit(MessageRule::new(limiter.clone()).key(form))
            .build()
            .unwrap();
        let peer = Peer::new(Session { tier: "gold", ..Session::of("alice") })
            .ip("203.0.113.9".parse().unwrap())
            .id("c-1");
        let mut connection = gate.connect(peer);
        assert!(is_accepted(&mut connection, "PING"));
        assert_eq!(limiter.peek(text).cost(0).now().unwrap().remaining(), 4, "{text}");
    }
}

#[test]
fn invented_types_share_one_bucket() {
    let fixture = Fixture::new();
    let gate = Gate::for_types(["SAY", "PING"])
        .limit(fixture.limiter("say", 1, 5))
        .connection_ceiling(fixture.limiter("ceiling", 1, 1_000))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let invented = (0..10_000).filter(|n| is_accepted(&mut connection, &format!("T{n}"))).count();
    assert_eq!(invented, 5, "all of them share one bucket");
    assert_eq!(
        refusal_reason(&mut connection, "*"),
        RefusalReason::Rate,
        "the reserved name gets no bucket of its own"
    );
    assert!(fixture.buckets() <= 2, "{} buckets", fixture.buckets());
    assert_eq!(accepted_count(&mut connection, "SAY", 99), 5, "declared types have their own");
}

#[test]
fn ceiling_bounds_invented_types() {
    let fixture = Fixture::new();
    let gate = Gate::for_any_type()
        .limit(fixture.limiter("say", 1, 5))
        .connection_ceiling(fixture.limiter("ceiling", 1, 50))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let invented = (0..10_000).filter(|n| is_accepted(&mut connection, &format!("T{n}"))).count();
    assert_eq!(invented, 50);
    assert!(fixture.buckets() <= 51, "{} buckets", fixture.buckets());
}

#[test]
fn unbounded_keys_show_in_inserted_buckets() {
    let fixture = Fixture::new();
    let number = AtomicU64::new(0);
    let wrong = MessageRule::new(fixture.limiter("say", 1, 1)).key(move |context| {
        // A bucket for each message limits nothing.
        context.connection_key().and(number.fetch_add(1, Ordering::Relaxed).to_string())
    });
    let gate = Gate::for_types(["PING"]).limit(wrong).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert_eq!(accepted_count(&mut connection, "PING", 500), 500);
    assert_eq!(fixture.engine.store().local().unwrap().stats().inserted, 500);
}

#[test]
fn memory_of_150_000_buckets_is_bounded() {
    let fixture = Fixture::new();
    let types: Vec<String> = (0..30).map(|n| format!("type-{n}")).collect();
    let gate = Gate::for_types(&types).limit(fixture.limiter("say", 1, 1_000)).build().unwrap();
    for user in 0..5_000 {
        let mut connection = gate.connect(Peer::new(Session::of(&format!("user-{user}"))));
        for message_type in &types {
            assert!(is_accepted(&mut connection, message_type));
        }
    }
    let stats = fixture.engine.store().local().unwrap().stats();
    assert_eq!(stats.keys, 150_000);
    assert!(stats.memory_bytes < 50 << 20, "{} bytes", stats.memory_bytes);
}

/// R227: one limiter for users and for connections, and a tenant named like the part before the id
/// of a connection.
#[test]
fn tenant_named_conn_shares_no_bucket_with_connections() {
    let fixture = Fixture::new();
    let limiter = fixture.limiter("all", 1, 5);
    let by_connection = MessageRule::<Session>::new(limiter.clone()).key(connection_key);
    let rule = MessageRule::new(limiter)
        .key(per_user_key)
        .when(|context| context.user().is_some())
        .otherwise(by_connection);
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let mut anonymous = gate.connect(Peer::new(Session::default()).id("7"));
    let mut user =
        gate.connect(Peer::new(Session { tenant: Some("conn".into()), ..Session::of("7") }));
    assert_eq!(accepted_count(&mut user, "SAY", 9), 5);
    assert_eq!(accepted_count(&mut anonymous, "SAY", 9), 5);
}

/// R227: a user named like an address, and the anonymous client at that address.
#[test]
fn user_named_like_an_address_shares_no_bucket_with_it() {
    for address in ["203.0.113.9", "2001:db8:1:2::", "::1"] {
        let fixture = Fixture::new();
        let gate = Gate::for_types(["PING"]).limit(fixture.limiter("say", 1, 2)).build().unwrap();
        let mut client = gate.connect(Peer::new(Session::default()).ip(address.parse().unwrap()));
        let text = client.context("PING").ip().unwrap().to_owned();
        let mut user = gate.connect(Peer::new(Session::of(&text)));
        assert_eq!(accepted_count(&mut user, "PING", 9), 2);
        assert_eq!(accepted_count(&mut client, "PING", 9), 2, "{address}");
    }
}

/// R225: the header of a trusted proxy counts, that of a client does not.
#[test]
fn clients_behind_a_proxy_have_their_own_buckets() {
    let header = ClientAddress::from_header("cf-connecting-ip");
    let list = ClientAddress::from_x_forwarded_for();
    for (clients, name) in [(header, "cf-connecting-ip"), (list, "x-forwarded-for")] {
        let clients = clients.trust_proxies(["10.0.0.0/8"]).unwrap();
        let fixture = Fixture::new();
        let gate = Gate::for_types(["PING"]).limit(fixture.limiter("say", 1, 2)).build().unwrap();
        let accepted = |socket: &str, client: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, client.parse().unwrap());
            let peer = Peer::new(Session::default());
            let peer = peer.client_address(&clients, socket.parse().unwrap(), &headers);
            accepted_count(&mut gate.connect(peer), "PING", 9)
        };
        assert_eq!(accepted("10.0.0.1", "203.0.113.9"), 2);
        assert_eq!(accepted("10.0.0.2", "203.0.113.9"), 0, "another proxy, the same client");
        assert_eq!(accepted("10.0.0.1", "203.0.113.10"), 2);
        // One /64 is one client.
        assert_eq!(accepted("10.0.0.1", "2001:db8:1:2::1"), 2);
        assert_eq!(accepted("10.0.0.1", "2001:db8:1:2::2"), 0);
        // A client cannot choose another address.
        assert_eq!(accepted("198.51.100.7", "192.0.2.1"), 2);
        assert_eq!(accepted("198.51.100.7", "192.0.2.2"), 0);
        // IPv4 clients behind NAT64 are not one client.
        assert_eq!(accepted("10.0.0.1", "64:ff9b::192.0.2.33"), 2);
        assert_eq!(accepted("10.0.0.1", "64:ff9b::192.0.2.34"), 2);
        assert_eq!(accepted("10.0.0.1", "::ffff:192.0.2.34"), 0, "the same IPv4 address");
    }
}

#[test]
fn prefix_of_a_client_can_be_chosen() {
    let clients = ClientAddress::peer().ipv6_prefix(56).unwrap();
    let gate = Gate::for_types(["PING"]).build().unwrap();
    let socket = "2001:db8:1:2ff::1".parse().unwrap();
    let peer = Peer::new(()).client_address(&clients, socket, &HeaderMap::new());
    assert_eq!(gate.connect(peer).context("PING").ip(), Some("2001:db8:1:200::"));
}

#[test]
fn generated_ids_are_unique_across_gates() {
    let (one, other) = (Gate::for_types(["A"]).build().unwrap(), Gate::for_types(["A"]).build());
    let other = other.unwrap();
    let mut ids: Vec<String> = (0..100)
        .flat_map(|_| [one.connect(Peer::new(())), other.connect(Peer::new(()))])
        .map(|connection| connection.id().as_str().to_owned())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 200);
}

/// Hostile names: made of separators, escapes and their results, or of words that keys contain.
fn name() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(vec![
        "",
        "rl",
        "conn",
        "anon",
        "public",
        "ip",
        "c",
        "PING",
        "203.0.113.9",
        "::1",
        "::",
        "2001:db8::",
        "conn:c",
        "::ffff:1.2.3.4",
    ]);
    prop_oneof!["[ab:%32A5]{0,4}".boxed(), word.prop_map(str::to_owned).boxed()]
}

/// Who is charged, as far as a key function can tell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    User(String),
    Address(IpAddr),
    Anonymous,
    Connection(String),
}

fn subject() -> impl Strategy<Value = Subject> {
    let address = proptest::sample::select(vec!["203.0.113.9", "::1", "2001:db8::", "::"]);
    prop_oneof![
        4 => name().prop_map(Subject::User),
        1 => address.prop_map(|address| Subject::Address(address.parse().unwrap())),
        1 => Just(Subject::Anonymous),
        2 => name().prop_map(Subject::Connection),
    ]
}

/// Every way in which a gate can charge a client: tenant, subject, and type if it is in the key.
type Charged = (Option<String>, Subject, Option<String>);

fn peer_of(tenant: Option<&str>, subject: &Subject) -> Peer<Session> {
    let mut session = Session { tenant: tenant.map(Into::into), ..Session::default() };
    match subject {
        Subject::User(user) => {
            session.user = Some(user.clone());
            Peer::new(session).id("c")
        }
        Subject::Address(ip) => Peer::new(session).id("c").ip(*ip),
        Subject::Anonymous => Peer::new(session).id("c"),
        Subject::Connection(id) => Peer::new(session).id(id),
    }
}

/// The keys of a client by every function, and who each charges.
fn keys_of(tenant: Option<&str>, subject: &Subject, message_type: &str) -> Vec<(String, Charged)> {
    let peer = peer_of(tenant, subject);
    let connection = Gate::for_types(["PING"]).build().unwrap().connect(peer);
    let id = connection.id().as_str();
    let context = connection.context(message_type);
    // A missing tenant is the tenant `public`.
    let tenant = Some(tenant.unwrap_or("public").to_owned());
    let by_user = match subject {
        Subject::User(_) => subject.clone(),
        _ => Subject::Anonymous,
    };
    let by_user_or_ip = match (subject, context.ip()) {
        (Subject::User(_), _) => subject.clone(),
        (_, Some(ip)) => Subject::Address(ip.parse().unwrap()),
        _ => Subject::Anonymous,
    };
    let of_connection = Subject::Connection(id.to_owned());
    let typed = Some(message_type.to_owned());
    let mut keys = vec![
        (key_per_user_per_type(&context), (tenant.clone(), by_user.clone(), typed.clone())),
        (per_user_key(&context), (tenant.clone(), by_user, None)),
        (key_per_user_or_ip_per_type(&context), (tenant.clone(), by_user_or_ip, typed.clone())),
        (context.connection_key(), (None, of_connection.clone(), None)),
        (
            context.connection_key().and(context.message_type()),
            (None, of_connection.clone(), typed.clone()),
        ),
    ];
    if let Some(ip) = context.ip() {
        // The documented form of an application's own key.
        let own = KeyParts::from(["rl", "ip", ip, context.message_type()]);
        keys.push((own, (None, Subject::Address(ip.parse().unwrap()), typed)));
    }
    keys.into_iter().map(|(key, charged)| (key.to_string(), charged)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// R227: over all key functions, equal keys charge the same, and different keys do not.
    #[test]
    fn keys_are_equal_iff_they_charge_the_same(
        clients in proptest::collection::vec(
            (proptest::option::of(name()), subject(), name()), 2..40)
    ) {
        let mut charged_by: HashMap<String, Charged> = HashMap::new();
        let mut key_of: HashMap<Charged, String> = HashMap::new();
        for (tenant, subject, message_type) in clients {
            for (key, charged) in keys_of(tenant.as_deref(), &subject, &message_type) {
                let first = charged_by.entry(key.clone()).or_insert_with(|| charged.clone());
                prop_assert_eq!(&*first, &charged, "{}", key);
                let first = key_of.entry(charged).or_insert_with(|| key.clone());
                prop_assert_eq!(&*first, &key);
            }
        }
    }

    /// R227: so does the default key, which is not a function of its own: a store with all keys has
    /// one bucket for each of those who are charged.
    #[test]
    fn default_keys_differ_from_all_others(
        clients in proptest::collection::vec(
            (proptest::option::of(name()), subject(), name()), 2..20)
    ) {
        let fixture = Fixture::new();
        let limiter = fixture.limiter("all", 1, 1_000);
        let gate = Gate::for_any_type()
            .envelope(|frame| std::str::from_utf8(frame).ok().map(Cow::Borrowed))
            .limit(limiter.clone())
            .connection_ceiling(Limiter::new(Policy::allowance(1_000).unwrap()))
            .build()
            .unwrap();
        let mut charged_by = HashSet::new();
        // A connection resets its own buckets when it is dropped.
        let mut connections = Vec::new();
        for (tenant, subject, message_type) in &clients {
            let mut connection = gate.connect(peer_of(tenant.as_deref(), subject));
            let accepted = now_or_never(connection.ingress(message_type)).unwrap().unwrap();
            let accepted = accepted.accepted().unwrap();
            let default = match (subject, connection.context("").ip()) {
                (Subject::User(_), _) => subject.clone(),
                (_, Some(ip)) => Subject::Address(ip.parse().unwrap()),
                // Without user and address, the connection itself is charged.
                _ => Subject::Connection(connection.id().as_str().to_owned()),
            };
            let named = tenant.as_deref().unwrap_or("public").to_owned();
            charged_by.insert((Some(named), default, Some(accepted.message_type().to_owned())));
            for (key, charged) in keys_of(tenant.as_deref(), subject, message_type) {
                prop_assert!(limiter.take(&key).now().unwrap().is_allowed());
                charged_by.insert(charged);
            }
            connections.push(connection);
        }
        prop_assert_eq!(fixture.buckets(), charged_by.len());
    }

    #[test]
    fn text_equals_key_buf_from_parts(
        parts in proptest::collection::vec("[^\\x00]{0,6}|[:%]{0,3}", 1..7)
    ) {
        let mut key = KeyParts::from([parts[0].as_str()]);
        for part in &parts[1..] {
            key = key.and(part.as_str());
        }
        let reference = KeyBuf::from_parts(parts.iter().map(String::as_str));
        prop_assert_eq!(key.to_string(), reference.as_key().name());
        prop_assert_eq!(key.to_key(), reference);
    }

    #[test]
    fn no_user_shares_the_bucket_of_an_anonymous_connection(
        user in ".{0,12}",
        tenant in proptest::option::of(name()),
    ) {
        let fixture = Fixture::new();
        let gate = Gate::for_types(["PING"]).limit(fixture.limiter("say", 1, 1)).build().unwrap();
        let session = |user: Option<String>| Session { tenant: tenant.clone(), user, ..Session::default() };
        let mut anonymous = gate.connect(Peer::new(session(None)).id("c"));
        prop_assert!(is_accepted(&mut anonymous, "PING"));
        for name in [user.clone(), format!("conn:{user}"), "conn:c".into(), "conn".into()] {
            let mut user_connection = gate.connect(Peer::new(session(Some(name))));
            prop_assert!(is_accepted(&mut user_connection, "PING"));
            // The next name may be equal to this one.
            fixture.clock.advance(std::time::Duration::from_millis(10));
            prop_assert!(!is_accepted(&mut anonymous, "PING"));
            fixture.clock.advance(std::time::Duration::from_secs(1));
            prop_assert!(is_accepted(&mut anonymous, "PING"));
        }
    }
}
