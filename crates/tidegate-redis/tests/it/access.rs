//! TLS, passwords, the least that a user must be permitted, and warnings at the start.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::{Answer, Limit, Operation, Policy, Target};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, RedisServer};
use tidegate_testkit::subject::{ask, block_on};

use crate::fixture::{granted, left, open, prefix, runtime, slow, story, take};

fn encrypted(flavor: Flavor) {
    let server = RedisServer::builder(flavor).tls().password("a secret").start();
    let limit = slow("client", 5);
    block_on(async {
        assert!(server.url().starts_with("rediss://"));
        let builder = RedisStore::builder(&server.url()).prefix(prefix());
        let store = open(builder.clone().root_certificate(server.ca_pem())).await;
        granted(&store, &limit, "a", 2).await;
        assert_eq!(left(&store, &limit, "a").await, 3);
        // A server that cannot be trusted is not talked to.
        let _inside = runtime().enter();
        let careful = builder.open().unwrap();
        let text = careful.connected().await.unwrap_err().to_string();
        assert!(text.contains("certificate"), "{text}");
        assert!(!text.contains("a secret"), "{text}");
    });
}

#[test]
fn redis_over_tls() {
    encrypted(Flavor::Redis);
}

#[test]
fn valkey_over_tls() {
    encrypted(Flavor::Valkey);
}

#[test]
fn a_wrong_password_is_told_without_repeating_it() {
    let server = RedisServer::builder(Flavor::Redis).password("right").start();
    let url = server.url().replace("right", "wrong-one");
    let store = {
        let _inside = runtime().enter();
        RedisStore::builder(&url).prefix(prefix()).open().unwrap()
    };
    block_on(async {
        let text = store.connected().await.unwrap_err().to_string();
        assert!(text.contains("not connected"), "{text}");
        let error = take(&store, &slow("client", 5), "a", 1).await.unwrap_err();
        assert!(!format!("{} {error:?}", story(&error)).contains("wrong-one"));
    });
}

/// The line of the documents, with the name and password of the test.
fn least_privilege() -> String {
    let guide = include_str!("../../README.md");
    let line = guide.lines().find(|line| line.starts_with("ACL SETUSER")).unwrap();
    let line = line.strip_prefix("ACL SETUSER ").unwrap();
    format!("user {line}")
}

/// Every operation works with exactly what the documents say to permit.
#[test]
fn the_least_privilege_is_enough() {
    let server = RedisServer::builder(Flavor::Redis).acl(&least_privilege()).start();
    let url = server.url_as("tidegate", "PASSWORD");
    let lease = Some(Duration::from_secs(30));
    let calls = Limit::named("calls", Policy::concurrency(3, lease).unwrap()).unwrap();
    let limit = slow("client", 5);
    block_on(async {
        let store = open(RedisStore::builder(&url)).await;
        granted(&store, &limit, "a", 2).await;
        let target = Target::new(&limit, "a");
        let hold = Operation::Hold { target, span: Duration::from_millis(1) };
        ask(&store, hold).await.unwrap();
        ask(&store, Operation::Reset { target }).await.unwrap();
        for slots in [1, 2] {
            let receipt = granted(&store, &calls, "a", slots).await.receipt;
            let targets = [Target::new(&calls, "a")];
            let renew = Operation::Renew { targets: &targets, receipt: &receipt };
            assert_eq!(ask(&store, renew).await.unwrap(), Answer::Slots(slots));
            assert!(!take(&store, &calls, "a", 3).await.unwrap().is_allowed());
            let release = Operation::Release { targets: &targets, receipt: &receipt };
            assert_eq!(ask(&store, release).await.unwrap(), Answer::Slots(slots));
        }
        let unleased = Limit::named("unleased", Policy::concurrency(3, None).unwrap()).unwrap();
        granted(&store, &unleased, "a", 1).await;
        let mut limit = limit;
        for capacity in 6..10 {
            limit = limit.revise(*slow("x", capacity).policy(), Default::default()).unwrap();
            granted(&store, &limit, "a", 1).await;
        }
        // Heartbeats work as well.
        assert!(tidegate_core::Store::nodes(&store).is_some());
    });
    // And nothing beyond it does.
    let refused = server.calls_of("flushall");
    assert_eq!(refused, 0);
}

/// Where logs go in a test.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is logged when a store connects to this server, on a runtime of this thread.
fn log_of_connecting(server: &RedisServer) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        block_on(async {
            let store = RedisStore::builder(&server.url()).prefix(prefix()).open().unwrap();
            store.connected().await.unwrap();
        });
    });
    log.text()
}

/// A server that evicts gives live buckets back full.
#[test]
fn a_server_that_evicts_is_warned_of() {
    let server = RedisServer::start(Flavor::Redis);
    assert!(!log_of_connecting(&server).contains("evict"));
    let _ = server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert!(!log_of_connecting(&server).contains("evict"), "without a bound nothing is evicted");
    let _ = server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let _ = server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        let log = log_of_connecting(&server);
        assert!(
            log.contains("WARN") && log.contains("noeviction") && log.contains(policy),
            "{log}"
        );
    }
}
