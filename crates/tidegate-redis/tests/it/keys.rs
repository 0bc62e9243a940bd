//! Stored keys: their names, their time to live, and foreign data.

use std::time::Duration;

use tidegate_core::{
    Charge, Key, Limit, Operation, Policy, PolicyChange, Store as _, StoreResponse, StoreResponses,
    Target,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, RedisServer, wait_until};
use tidegate_testkit::subject::{block_on, execute};

use crate::fixture::{
    error_chain, granted, open, prefix, remaining, runtime, server, server_micros, slow_bucket,
    store, take,
};

fn bucket(name: &str, rate: &str, capacity: u64) -> Limit {
    let policy = Policy::rate(rate.parse().unwrap()).capacity(capacity).build().unwrap();
    Limit::named(name, policy).unwrap()
}

fn ttl(server: &RedisServer, key: &str) -> i64 {
    server.command(&["PTTL", key]).integer()
}

/// R165, R166, R289: equal keys under two limits on one connection are two buckets.
#[test]
fn limits_do_not_share_buckets() {
    block_on(async {
        let store = store(server(Flavor::Redis)).await;
        let (cheap, dear) = (slow_bucket("cheap", 200), slow_bucket("dear", 10));
        granted(&store, &cheap, "user:1", 1).await;
        granted(&store, &dear, "user:1", 5).await;
        assert_eq!(remaining(&store, &cheap, "user:1").await, 199);
        assert_eq!(remaining(&store, &dear, "user:1").await, 5);
        // Inline limits are identified by their parameters.
        let inline = |capacity| Limit::inline(*slow_bucket("x", capacity).policy());
        granted(&store, &inline(3), "user:1", 1).await;
        granted(&store, &inline(4), "user:1", 1).await;
        assert_eq!(remaining(&store, &inline(3), "user:1").await, 2);
    });
}

/// R164: stores with different prefixes are independent.
#[test]
fn prefixes_separate_stores() {
    let limit = slow_bucket("client", 5);
    block_on(async {
        let (one, other) = (store(server(Flavor::Redis)).await, store(server(Flavor::Redis)).await);
        granted(&one, &limit, "a", 5).await;
        assert_eq!(remaining(&other, &limit, "a").await, 5);
    });
}

/// R189, R190, R192, R193: time to live of buckets.
#[test]
fn buckets_expire_only_when_full() {
    let server = server(Flavor::Redis);
    let (plain, short, long) = (prefix(), prefix(), prefix());
    block_on(async {
        let store = open(RedisStore::builder(&server.url()).prefix(&*plain)).await;
        for (rate, capacity, expected) in
            [("1/s", 10, 60_000), ("10/s", 100, 60_000), ("10/s", 1, 60_000), ("1/s", 100, 200_000)]
        {
            let limit = bucket(&format!("l{capacity}.{expected}"), rate, capacity);
            granted(&store, &limit, "a", 1).await;
            let found = ttl(server, &format!("{plain}1:{{a}}:{}", limit.name()));
            assert!((expected - 5_000..=expected).contains(&found), "{rate} {capacity}: {found}");
        }
        // A configured time to live applies, but a bucket never expires before it is full.
        let store =
            open(RedisStore::builder(&server.url()).prefix(&*long).ttl(Duration::from_secs(120)))
                .await;
        granted(&store, &bucket("b", "1/s", 10), "a", 1).await;
        let found = ttl(server, &format!("{long}1:{{a}}:b"));
        assert!((115_000..=120_000).contains(&found), "{found}");
        let store =
            open(RedisStore::builder(&server.url()).prefix(&*short).ttl(Duration::from_millis(1)))
                .await;
        granted(&store, &bucket("b", "1/min", 10), "a", 9).await;
        let found = ttl(server, &format!("{short}1:{{a}}:b"));
        assert!((535_000..=541_000).contains(&found), "{found}");
    });
}

/// R189: a key that nobody uses expires once its bucket is full. One that is used stays for as long
/// as that goes on, here for ten times as long as a bucket that is short of one token.
#[test]
fn idle_keys_expire_and_used_ones_stay() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let (limit, token_micros) = (bucket("b", "4/s", 4), 250_000);
    let exists = |key: &str| server.command(&["EXISTS", &format!("{prefix}1:{{{key}}}:b")]);
    block_on(async {
        let builder = RedisStore::builder(&server.url()).prefix(&*prefix);
        let store = open(builder.ttl(Duration::from_millis(1))).await;
        granted(&store, &limit, "idle", 4).await;
        assert_eq!(exists("idle").integer(), 1);
        let start = server_micros(server);
        granted(&store, &limit, "used", 4).await;
        let (mut spent, mut now) = (4, start);
        while now < start + 10 * token_micros {
            spent += u64::from(take(&store, &limit, "used", 1).await.unwrap().is_allowed());
            assert_eq!(exists("used").integer(), 1, "after {} us", now - start);
            now = server_micros(server);
        }
        let refilled = (now - start) / token_micros;
        assert!((8..=4 + refilled).contains(&spent), "{spent} spent, {refilled} refilled");
    });
    wait_until("the idle key to expire", || (exists("idle").integer() == 0).then_some(()));
}

/// A held key lives until it has reopened and refilled, an allowance forever, slots as long as
/// their leases.
#[test]
fn holds_allowances_and_slots_have_their_own_ttl() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    block_on(async {
        let store = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        let held = bucket("held", "1/s", 10);
        let target = Target::new(&held, "a");
        let span = Duration::from_secs(1_000);
        let answer = execute(&store, Operation::Hold { target, span }).await.unwrap();
        assert!(matches!(answer, StoreResponse::HeldFor(_)), "{answer:?}");
        let found = ttl(server, &format!("{prefix}1:{{a}}:held"));
        assert!((1_005_000..=1_011_000).contains(&found), "{found}");
        let total = Limit::named("total", Policy::allowance(5).unwrap()).unwrap();
        granted(&store, &total, "a", 1).await;
        assert_eq!(ttl(server, &format!("{prefix}1:{{a}}:total")), -1);
        let lease = Some(Duration::from_secs(30));
        let calls = Limit::named("calls", Policy::concurrency(2, lease).unwrap()).unwrap();
        let grant = granted(&store, &calls, "a", 1).await;
        let slots = format!("{prefix}1s:{{a}}:calls");
        assert!((29_000..=31_000).contains(&ttl(server, &slots)));
        let (targets, receipt) = ([Target::new(&calls, "a")], &grant.receipt);
        let answer =
            execute(&store, Operation::Release { targets: &targets, receipt }).await.unwrap();
        assert_eq!(answer, StoreResponse::Slots(1));
        assert_eq!(ttl(server, &slots), -2, "the key is deleted with its last slot");
    });
}

/// Slots without a lease keep their key forever. Once the last of them is released, the key expires
/// with the remaining leases.
#[test]
fn slots_regain_their_ttl() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let policy = |lease| Policy::concurrency(5, lease).unwrap();
    let unleased = Limit::named("calls", policy(None)).unwrap();
    let lease = Some(Duration::from_secs(30));
    let leased = unleased.revise(policy(lease), PolicyChange::KeepTokens).unwrap();
    let slots = format!("{prefix}1s:{{a}}:calls");
    block_on(async {
        let store = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        let receipt = granted(&store, &unleased, "a", 1).await.receipt;
        granted(&store, &leased, "a", 1).await;
        assert_eq!(ttl(server, &slots), -1);
        let (targets, receipt) = ([Target::new(&leased, "a")], &receipt);
        execute(&store, Operation::Release { targets: &targets, receipt }).await.unwrap();
        let found = ttl(server, &slots);
        assert!((1..=31_000).contains(&found), "{found}");
    });
}

/// For round numbers a script may write `1e+14` as a time to live.
#[test]
fn ttls_of_every_magnitude_work() {
    let limit = slow_bucket("client", 10);
    block_on(async {
        for flavor in Flavor::ALL {
            for exponent in [5, 8, 9, 10, 14, 18] {
                let millis = 10_u64.pow(exponent);
                let builder = RedisStore::builder(&server(flavor).url()).prefix(prefix());
                let store = open(builder.ttl(Duration::from_millis(millis))).await;
                assert_eq!(granted(&store, &limit, "a", 1).await.outcomes[0].remaining, 9);
                assert_eq!(remaining(&store, &limit, "a").await, 9, "{flavor} {millis}");
            }
        }
    });
}

/// Data of other versions is refused, not misread, and not overwritten.
#[test]
fn unknown_format_is_refused() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let limit = slow_bucket("client", 5);
    block_on(async {
        let store = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        granted(&store, &limit, "b", 1).await;
        let key = format!("{prefix}1:{{a}}:client");
        for unknown in ["\u{2}whatever comes later", "\u{1}cut short", ""] {
            let _ = server.command(&["SET", &key, unknown]);
            let error = take(&store, &limit, "a", 1).await.unwrap_err();
            assert!(error_chain(&error).contains("format"), "{}", error_chain(&error));
            assert_eq!(server.command(&["GET", &key]).text(), unknown);
        }
        // Other buckets of the list are not charged either.
        let list = [Charge::new(&limit, "b", 1), Charge::new(&limit, "a", 1)];
        assert!(execute(&store, Operation::Take(&list)).await.is_err());
        assert_eq!(remaining(&store, &limit, "b").await, 4);
        // An operator can still reset the key.
        let target = Target::new(&limit, "a");
        assert_eq!(
            execute(&store, Operation::Reset { target }).await.unwrap(),
            StoreResponse::Reset(true)
        );
        assert_eq!(granted(&store, &limit, "a", 1).await.outcomes[0].remaining, 4);
    });
}

/// Another program has written to a key for slots. Operations on that key fail; other operations in
/// the same call are executed once.
#[test]
fn foreign_key_affects_only_its_own_operations() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let calls = Limit::named("calls", Policy::concurrency(5, None).unwrap()).unwrap();
    let foreign = format!("{prefix}1s:{{bad}}:calls");
    let _ = server.command(&["SET", &foreign, "whatever"]);
    block_on(async {
        let store = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        let lists = ["good", "bad", "better"].map(|key| [Charge::new(&calls, key, 1)]);
        let both = [Charge::new(&calls, "good", 1), Charge::new(&calls, "bad", 1)];
        let mut operations: Vec<Operation<'_>> =
            lists.iter().map(|list| Operation::Take(list)).collect();
        operations.push(Operation::Take(&both));
        let mut answers = StoreResponses::new();
        store.submit(&operations, &mut answers).await;
        let answers: Vec<Result<StoreResponse, String>> =
            answers.into_iter().map(|answer| answer.map_err(|error| error_chain(&error))).collect();
        for (answer, ok) in answers.iter().zip([true, false, true, false]) {
            match answer {
                Ok(StoreResponse::Decision(decision)) => assert!(ok && decision.is_allowed()),
                Err(text) => assert!(!ok && text.contains("data of another program"), "{text}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            [remaining(&store, &calls, "good").await, remaining(&store, &calls, "better").await],
            [4; 2]
        );
        assert_eq!(server.command(&["GET", &foreign]).text(), "whatever");
    });
}

/// A prefix in use by another format is not touched.
#[test]
fn other_format_under_the_prefix_is_refused() {
    let (server, prefix) = (server(Flavor::Valkey), prefix());
    let _ = server.command(&["SET", &format!("{prefix}format"), "2"]);
    block_on(async {
        let store = {
            let _runtime_guard = runtime().enter();
            RedisStore::builder(&server.url()).prefix(&*prefix).open().unwrap()
        };
        let text = store.connected().await.unwrap_err().to_string();
        assert!(text.contains("format 2") && text.contains("format 1"), "{text}");
        let error = take(&store, &slow_bucket("client", 5), "a", 1).await.unwrap_err();
        assert!(error_chain(&error).contains("format 2"), "{}", error_chain(&error));
        let keys = server.command(&["KEYS", &format!("{prefix}*")]).array();
        assert_eq!(keys.len(), 1);
    });
}

/// A policy history of another version is refused as well.
#[test]
fn policies_of_unknown_format_are_refused() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let record = format!("{prefix}1p:{{client}}");
    let _ = server.command(&["HSET", &record, "5", "2k bucket 5 1 1 1 1", "newest", "5"]);
    block_on(async {
        let store = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        let error = take(&store, &slow_bucket("client", 5), "a", 1).await.unwrap_err();
        assert!(error_chain(&error).contains("format 2"), "{}", error_chain(&error));
    });
}

/// Even unusual keys are different buckets.
#[test]
fn unusual_keys_are_distinct() {
    let limit = slow_bucket("client", 100);
    block_on(async {
        let store = store(server(Flavor::Redis)).await;
        let names = ["a", "a:b", "a%3Ab", "{a}", "}{", "\0", "\r\n", "ä", " ", &"x".repeat(1_024)];
        for (index, name) in names.iter().enumerate() {
            let cost = u64::try_from(index).unwrap() + 1;
            assert_eq!(take(&store, &limit, *name, cost).await.unwrap().remaining(), 100 - cost);
            let grouped = Key::new(name).in_group("a");
            let remaining = take(&store, &limit, grouped, cost + 20).await.unwrap().remaining();
            assert_eq!(remaining, 80 - cost);
        }
    });
}

/// Quotas that a double cannot count exactly are refused, not rounded; and so are more slots than
/// can be distinguished from instants.
#[test]
fn uncountable_policies_are_refused() {
    block_on(async {
        let store = store(server(Flavor::Redis)).await;
        for huge in [
            Policy::allowance((1 << 51) + 1),
            Policy::quota((1 << 51) + 1),
            Policy::concurrency((1 << 32) + 1, None),
        ] {
            let limit = Limit::named("huge", huge.unwrap()).unwrap();
            let error = take(&store, &limit, "a", 1).await.unwrap_err();
            assert!(error.is_caller_error(), "{}", error_chain(&error));
        }
        let slots = Limit::named("slots", Policy::concurrency(1 << 32, None).unwrap()).unwrap();
        granted(&store, &slots, "a", 1 << 31).await;
        granted(&store, &slots, "a", 1 << 30).await;
        assert_eq!(remaining(&store, &slots, "a").await, 1 << 30);
        let largest = Limit::named("most", Policy::allowance(1 << 51).unwrap()).unwrap();
        assert_eq!(granted(&store, &largest, "a", 1).await.outcomes[0].remaining, (1 << 51) - 1);
        assert!(!take(&store, &largest, "a", u64::MAX).await.unwrap().is_allowed());
    });
}
