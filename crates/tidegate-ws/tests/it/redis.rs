//! Gates on a real Redis: one connection, no keys of connections, and what a crash leaves behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::redis::RedisStore;
use tidegate::{Engine, Limiter, Policy};
use tidegate_testkit::launch::{Flavor, RedisServer, Reply, wait_until};
use tidegate_ws::{
    Connection, Counter, Gate, Histogram, KeyParts, MessageDecision, MessageRule, Observer, Peer,
    RefusalReason,
};

use crate::fixture::{Session, connection_key, frame};

async fn engine(server: &RedisServer) -> Engine {
    let store = RedisStore::builder(&server.url()).prefix("ws:").open().unwrap();
    store.connected().await.unwrap();
    Engine::shared(store).unwrap()
}

/// A bucket that does not refill during a test.
fn limiter(engine: &Engine, name: &str, capacity: u64) -> Limiter {
    engine.limiter(name, Policy::per_hour(1).capacity(capacity).build().unwrap()).unwrap()
}

async fn send(connection: &mut Connection<Session>) -> Option<RefusalReason> {
    match connection.ingress(frame("SAY")).await.unwrap() {
        MessageDecision::Accepted(_) => None,
        MessageDecision::Refused(refusal) => Some(refusal.reason()),
    }
}

fn connections(server: &RedisServer) -> usize {
    // One of them is the connection of this command.
    server.command(&["CLIENT", "LIST"]).text().lines().count() - 1
}

/// Names of the buckets on the server, without the store's own keys.
fn buckets(server: &RedisServer) -> Vec<String> {
    let keys = server.command(&["KEYS", "*"]).array();
    keys.into_iter().map(Reply::text).filter(|key| key.starts_with("ws:1:{")).collect()
}

/// R184: two limiters of one gate, and two gates, on one connection to Redis. R163: it closes with
/// the last handle, whatever is dropped first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limiters_share_one_connection() {
    let server = RedisServer::start(Flavor::Redis);
    let engine = engine(&server).await;
    let (cheap, expensive) = (limiter(&engine, "cheap", 200), limiter(&engine, "expensive", 3));
    let gate = Gate::for_types(["SAY"]).limit(cheap).limit(expensive.clone()).build().unwrap();
    let other = Gate::for_types(["SAY"]).limit(expensive).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let mut elsewhere = other.connect(Peer::new(Session::of("alice")));
    for _ in 0..2 {
        assert_eq!(send(&mut connection).await, None);
    }
    assert_eq!(send(&mut elsewhere).await, None);
    assert_eq!(send(&mut connection).await, Some(RefusalReason::Rate), "one bucket for both gates");
    assert_eq!(connections(&server), 1);
    drop((engine, gate, other, elsewhere));
    assert_eq!(send(&mut connection).await, Some(RefusalReason::Rate), "still connected");
    drop(connection);
    wait_until("the connection to close", || (connections(&server) == 0).then_some(()));
}

/// R189, R228, R262: a crash leaves the buckets of users, which expire, and none of connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_leaves_no_key_of_a_connection() {
    let server = RedisServer::start(Flavor::Redis);
    let engine = engine(&server).await;
    let own = engine.limiter("own", Policy::allowance(9).unwrap()).unwrap();
    let gate = Gate::for_types(["SAY"])
        .limit(limiter(&engine, "user", 9))
        .limit(MessageRule::<Session>::new(own).key(connection_key))
        .connection_ceiling(Limiter::new(Policy::allowance(2).unwrap()))
        .build()
        .unwrap();
    let evaluations = || server.command_calls("evalsha") + server.command_calls("eval");
    let mut alice = gate.connect(Peer::new(Session::of("alice")));
    let mut anonymous = gate.connect(Peer::new(Session::default()));
    for connection in [&mut alice, &mut anonymous] {
        assert_eq!(send(connection).await, None);
        assert_eq!(send(connection).await, None);
        assert_eq!(send(connection).await, Some(RefusalReason::ConnectionUsedUp));
    }
    assert_eq!(buckets(&server), ["ws:1:{rl%3Apublic%3Aalice%3ASAY}:user"]);
    for key in buckets(&server) {
        let ttl = server.command(&["PTTL", &key]).integer();
        assert!(ttl > 0, "{key} never expires");
    }
    // A thousand more messages over the ceiling cost no call, heartbeats apart.
    let before = evaluations();
    for _ in 0..1_000 {
        assert_eq!(send(&mut alice).await, Some(RefusalReason::ConnectionUsedUp));
    }
    assert!(evaluations() - before < 50, "{} calls", evaluations() - before);
    // A crash runs no destructor.
    std::mem::forget((alice, anonymous));
    assert_eq!(buckets(&server).len(), 1);
}

/// R228: what Redis denies spends nothing of the ceiling, and the other way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ceiling_and_redis_spend_together_or_not_at_all() {
    let server = RedisServer::start(Flavor::Valkey);
    let engine = engine(&server).await;
    let user = limiter(&engine, "user", 5);
    let ceiling = Limiter::new(Policy::allowance(3).unwrap());
    let gate = Gate::for_types(["SAY"])
        .limit(user.clone())
        .connection_ceiling(ceiling.clone())
        .build()
        .unwrap();
    let connect = |id: &str| gate.connect(Peer::new(Session::of("alice")).id(id));
    let (mut phone, mut laptop) = (connect("phone"), connect("laptop"));
    for _ in 0..3 {
        assert_eq!(send(&mut phone).await, None);
    }
    for _ in 0..10 {
        assert_eq!(send(&mut phone).await, Some(RefusalReason::ConnectionUsedUp));
    }
    // The refused messages of the phone have spent nothing of the user.
    assert_eq!(send(&mut laptop).await, None);
    assert_eq!(send(&mut laptop).await, None);
    for _ in 0..10 {
        assert_eq!(send(&mut laptop).await, Some(RefusalReason::Rate));
    }
    // And those of the laptop nothing of its ceiling.
    assert_eq!(ceiling.peek("rl:conn:laptop").cost(0).now().unwrap().remaining(), 1);
    let left = user.peek("rl:public:alice:SAY").cost(0).await.unwrap();
    assert_eq!(left.remaining(), 0);
}

#[derive(Default)]
struct NewBuckets(AtomicU64);

impl Observer for NewBuckets {
    fn count(&self, counter: Counter) {
        if counter == Counter::NewBuckets {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn record(&self, _: Histogram, _: u64) {}
}

/// R223: a key function that returns a new key for every message shows in a metric.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unbounded_keys_on_redis_show_in_a_metric() {
    let server = RedisServer::start(Flavor::Redis);
    let engine = engine(&server).await;
    let (right, wrong) = (Arc::new(NewBuckets::default()), Arc::new(NewBuckets::default()));
    let number = AtomicU64::new(0);
    let unbounded = MessageRule::new(limiter(&engine, "unbounded", 9)).key(move |_| {
        KeyParts::from(["message"]).and(number.fetch_add(1, Ordering::Relaxed).to_string())
    });
    let gates = [
        (MessageRule::new(limiter(&engine, "bounded", 99)), right.clone()),
        (unbounded, wrong.clone()),
    ];
    for (rule, counter) in gates {
        let gate = Gate::for_types(["SAY"]).limit(rule).observer(counter).build().unwrap();
        let mut connection = gate.connect(Peer::new(Session::of("alice")));
        for _ in 0..50 {
            assert_eq!(send(&mut connection).await, None);
        }
    }
    assert_eq!((right.0.load(Ordering::SeqCst), wrong.0.load(Ordering::SeqCst)), (1, 50));
    assert_eq!(buckets(&server).len(), 1 + 50);
}
