//! TLS, passwords, the documented ACL, and warnings on connecting.

use std::time::Duration;

use tidegate_core::{Limit, Operation, Policy, StoreResponse, Target};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, RedisServer};
use tidegate_testkit::subject::{block_on, execute};

use crate::fixture::{
    error_chain, granted, logged, open, prefix, remaining, runtime, server, slow_bucket, take,
};

fn check_tls(flavor: Flavor) {
    let server = RedisServer::builder(flavor).tls().password("a secret").start();
    let limit = slow_bucket("client", 5);
    block_on(async {
        assert!(server.url().starts_with("rediss://"));
        let builder = RedisStore::builder(&server.url()).prefix(prefix());
        let store = open(builder.clone().root_certificate(server.ca_pem())).await;
        granted(&store, &limit, "a", 2).await;
        assert_eq!(remaining(&store, &limit, "a").await, 3);
        // An untrusted server is refused.
        let _runtime_guard = runtime().enter();
        let untrusting = builder.open().unwrap();
        let text = untrusting.connected().await.unwrap_err().to_string();
        assert!(text.contains("certificate"), "{text}");
        assert!(!text.contains("a secret"), "{text}");
    });
}

#[test]
fn redis_over_tls() {
    check_tls(Flavor::Redis);
}

#[test]
fn valkey_over_tls() {
    check_tls(Flavor::Valkey);
}

#[test]
fn wrong_password_is_reported_without_the_password() {
    let server = RedisServer::builder(Flavor::Redis).password("right").start();
    let url = server.url().replace("right", "wrong-one");
    let store = {
        let _runtime_guard = runtime().enter();
        RedisStore::builder(&url).prefix(prefix()).open().unwrap()
    };
    block_on(async {
        let text = store.connected().await.unwrap_err().to_string();
        assert!(text.starts_with("not connected to redis: "), "{text}");
        let error = take(&store, &slow_bucket("client", 5), "a", 1).await.unwrap_err();
        assert!(!format!("{} {error:?}", error_chain(&error)).contains("wrong-one"));
    });
}

/// The ACL line of the README.
fn documented_acl() -> String {
    let guide = include_str!("../../README.md");
    let line = guide.lines().find(|line| line.starts_with("ACL SETUSER")).unwrap();
    let line = line.strip_prefix("ACL SETUSER ").unwrap();
    format!("user {line}")
}

/// Every operation works with exactly the permissions in the README.
#[test]
fn documented_acl_is_sufficient() {
    let server = RedisServer::builder(Flavor::Redis).acl(&documented_acl()).start();
    let url = server.url_as("tidegate", "PASSWORD");
    let lease = Some(Duration::from_secs(30));
    let calls = Limit::named("calls", Policy::concurrency(3, lease).unwrap()).unwrap();
    let limit = slow_bucket("client", 5);
    block_on(async {
        let store = open(RedisStore::builder(&url)).await;
        granted(&store, &limit, "a", 2).await;
        let target = Target::new(&limit, "a");
        let hold = Operation::Hold { target, span: Duration::from_millis(1) };
        execute(&store, hold).await.unwrap();
        execute(&store, Operation::Reset { target }).await.unwrap();
        for slots in [1, 2] {
            let receipt = granted(&store, &calls, "a", slots).await.receipt;
            let targets = [Target::new(&calls, "a")];
            let renew = Operation::Renew { targets: &targets, receipt: &receipt };
            assert_eq!(execute(&store, renew).await.unwrap(), StoreResponse::Slots(slots));
            assert!(!take(&store, &calls, "a", 3).await.unwrap().is_allowed());
            let release = Operation::Release { targets: &targets, receipt: &receipt };
            assert_eq!(execute(&store, release).await.unwrap(), StoreResponse::Slots(slots));
        }
        let unleased = Limit::named("unleased", Policy::concurrency(3, None).unwrap()).unwrap();
        granted(&store, &unleased, "a", 1).await;
        let mut limit = limit;
        for capacity in 6..10 {
            limit = limit.revise(*slow_bucket("x", capacity).policy(), Default::default()).unwrap();
            granted(&store, &limit, "a", 1).await;
        }
        // Heartbeats work as well.
        assert!(tidegate_core::Store::nodes(&store).is_some());
    });
    // Nothing was refused, and nothing else is permitted.
    assert!(!server.info("errorstats").contains_key("errorstat_NOPERM"));
    for not_permitted in [&["FLUSHALL"][..], &["KEYS", "*"], &["GET", "somebody:else"]] {
        let words: Vec<&str> =
            ["ACL", "DRYRUN", "tidegate"].iter().chain(not_permitted).copied().collect();
        let answer = server.command(&words).text();
        assert!(answer.contains("no permissions"), "{not_permitted:?}: {answer}");
    }
}

/// Log of a store that connects to this server, on a runtime of this thread.
fn connection_log(server: &RedisServer) -> String {
    logged(|| {
        block_on(async {
            let store = RedisStore::builder(&server.url()).prefix(prefix()).open().unwrap();
            store.connected().await.unwrap();
        });
    })
}

/// Error texts of the server contain the key, which may identify a person; those of the store do not.
#[test]
fn errors_do_not_contain_keys() {
    for flavor in Flavor::ALL {
        let server = RedisServer::builder(flavor)
            .acl("user blind on >secret ~t:1p:* ~t:1n ~t:format +@all")
            .acl("user lame on >secret ~t:* +@all -mget")
            .start();
        for user in ["blind", "lame"] {
            let url = server.url_as(user, "secret");
            let store = block_on(open(RedisStore::builder(&url).prefix("t:")));
            let error = block_on(take(&store, &slow_bucket("client", 5), "alice", 1)).unwrap_err();
            let text = format!("{} {error:?}", error_chain(&error));
            assert!(text.contains("refused") && !text.contains("alice"), "{flavor}: {text}");
        }
    }
}

/// An evicted bucket is full again.
#[test]
fn eviction_is_warned_about() {
    let server = RedisServer::start(Flavor::Redis);
    assert!(!connection_log(&server).contains("evict"));
    let _ = server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert!(
        !connection_log(&server).contains("evict"),
        "without a memory limit nothing is evicted"
    );
    let _ = server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let _ = server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        let log = connection_log(&server);
        assert!(
            log.contains("WARN") && log.contains("noeviction") && log.contains(policy),
            "{log}"
        );
    }
}

/// A time to live that is too short is not obeyed, and a slot without a lease may stay taken
/// forever: both are logged once, and nothing else is.
#[test]
fn risky_limits_are_warned_about_once() {
    let (server, second) = (server(Flavor::Redis), Duration::from_secs(1));
    let named = |name: &str, policy: Policy| Limit::named(name, policy).unwrap();
    let fast = named("quick", Policy::per_second(10).capacity(10).build().unwrap());
    let leased = named("leased", Policy::concurrency(50, Some(second)).unwrap());
    let unleased = named("unleased", Policy::concurrency(50, None).unwrap());
    let slow = slow_bucket("slow", 50);
    let log = logged(|| {
        block_on(async {
            let builder = RedisStore::builder(&server.url()).prefix(prefix()).ttl(second);
            let store = builder.open().unwrap();
            store.connected().await.unwrap();
            for key in ["a", "b", "a"] {
                for limit in [&fast, &leased, &unleased, &slow] {
                    granted(&store, limit, key, 1).await;
                }
            }
        });
    });
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 2, "{log}");
    assert!(warnings[0].contains("unleased") && warnings[0].contains("lease"), "{log}");
    assert!(warnings[1].contains("slow") && warnings[1].contains("time to full"), "{log}");
}
