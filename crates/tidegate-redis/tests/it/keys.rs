//! What is stored, under which names, for how long, and what is not ours to read.

use std::time::Duration;

use tidegate_core::{
    Answer, Answers, Change, Charge, Key, Limit, Operation, Policy, Store as _, Target,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, RedisServer};
use tidegate_testkit::subject::{ask, block_on};

use crate::fixture::{granted, left, open, prefix, runtime, server, slow, store, story, take};

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
        let (cheap, dear) = (slow("cheap", 200), slow("dear", 10));
        granted(&store, &cheap, "user:1", 1).await;
        granted(&store, &dear, "user:1", 5).await;
        assert_eq!(left(&store, &cheap, "user:1").await, 199);
        assert_eq!(left(&store, &dear, "user:1").await, 5);
        // Inline limits are their parameters.
        let inline = |capacity| Limit::inline(*slow("x", capacity).policy());
        granted(&store, &inline(3), "user:1", 1).await;
        granted(&store, &inline(4), "user:1", 1).await;
        assert_eq!(left(&store, &inline(3), "user:1").await, 2);
    });
}

/// R164: stores of different prefixes have nothing in common.
#[test]
fn prefixes_keep_stores_apart() {
    let limit = slow("client", 5);
    block_on(async {
        let (one, other) = (store(server(Flavor::Redis)).await, store(server(Flavor::Redis)).await);
        granted(&one, &limit, "a", 5).await;
        assert_eq!(left(&other, &limit, "a").await, 5);
    });
}

/// R189, R190, R192, R193: how long buckets live.
#[test]
fn buckets_live_until_they_are_full_and_no_shorter() {
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
        // An own time to live is used as given, but never ends a bucket before it is full.
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

/// A held key lives until it has reopened and refilled; an allowance for ever; slots as long as
/// their leases.
#[test]
fn holds_allowances_and_slots_live_as_long_as_they_must() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    block_on(async {
        let store = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        let held = bucket("held", "1/s", 10);
        let target = Target::new(&held, "a");
        let span = Duration::from_secs(1_000);
        let answer = ask(&store, Operation::Hold { target, span }).await.unwrap();
        assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
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
        let answer = ask(&store, Operation::Release { targets: &targets, receipt }).await.unwrap();
        assert_eq!(answer, Answer::Slots(1));
        assert_eq!(ttl(server, &slots), -2, "the last slot takes its key along");
    });
}

/// Slots without a lease keep their key for ever. When the last of them has been given back the
/// key lives as long as the leases that are left, or it would stay without any.
#[test]
fn slots_get_their_time_to_live_back() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let policy = |lease| Policy::concurrency(5, lease).unwrap();
    let unleased = Limit::named("calls", policy(None)).unwrap();
    let lease = Some(Duration::from_secs(30));
    let leased = unleased.revise(policy(lease), Change::KeepTokens).unwrap();
    let slots = format!("{prefix}1s:{{a}}:calls");
    block_on(async {
        let store = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        let receipt = granted(&store, &unleased, "a", 1).await.receipt;
        granted(&store, &leased, "a", 1).await;
        assert_eq!(ttl(server, &slots), -1);
        let (targets, receipt) = ([Target::new(&leased, "a")], &receipt);
        ask(&store, Operation::Release { targets: &targets, receipt }).await.unwrap();
        let found = ttl(server, &slots);
        assert!((1..=31_000).contains(&found), "{found}");
    });
}

/// Round numbers are where a script writes `1e+14` for a time to live.
#[test]
fn times_to_live_of_every_size_are_understood() {
    let limit = slow("client", 10);
    block_on(async {
        for flavor in Flavor::ALL {
            for exponent in [5, 8, 9, 10, 14, 18] {
                let millis = 10_u64.pow(exponent);
                let builder = RedisStore::builder(&server(flavor).url()).prefix(prefix());
                let store = open(builder.ttl(Duration::from_millis(millis))).await;
                assert_eq!(granted(&store, &limit, "a", 1).await.outcomes[0].remaining, 9);
                assert_eq!(left(&store, &limit, "a").await, 9, "{flavor} {millis}");
            }
        }
    });
}

/// What other versions have written is refused, not misread, and not overwritten.
#[test]
fn an_unknown_format_is_refused() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let limit = slow("client", 5);
    block_on(async {
        let store = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        granted(&store, &limit, "b", 1).await;
        let key = format!("{prefix}1:{{a}}:client");
        for strange in ["\u{2}whatever comes later", "\u{1}cut short", ""] {
            let _ = server.command(&["SET", &key, strange]);
            let error = take(&store, &limit, "a", 1).await.unwrap_err();
            assert!(story(&error).contains("format"), "{}", story(&error));
            assert_eq!(server.command(&["GET", &key]).text(), strange);
        }
        // Others of the same list are left alone too.
        let list = [Charge::new(&limit, "b", 1), Charge::new(&limit, "a", 1)];
        assert!(ask(&store, Operation::Take(&list)).await.is_err());
        assert_eq!(left(&store, &limit, "b").await, 4);
        // An operator may still forget the key.
        let target = Target::new(&limit, "a");
        assert_eq!(ask(&store, Operation::Reset { target }).await.unwrap(), Answer::Reset(true));
        assert_eq!(granted(&store, &limit, "a", 1).await.outcomes[0].remaining, 4);
    });
}

/// Somebody else has put something where slots would be. Whoever needs that key is told; those
/// whose operations go with the same call are not concerned, and get what they ask for once.
#[test]
fn a_key_that_is_not_the_stores_concerns_nobody_else() {
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
        let mut answers = Answers::new();
        store.submit(&operations, &mut answers).await;
        let answers: Vec<Result<Answer, String>> =
            answers.into_iter().map(|answer| answer.map_err(|error| story(&error))).collect();
        for (answer, fine) in answers.iter().zip([true, false, true, false]) {
            match answer {
                Ok(Answer::Decision(decision)) => assert!(fine && decision.is_allowed()),
                Err(text) => assert!(!fine && text.contains("data of another program"), "{text}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            [left(&store, &calls, "good").await, left(&store, &calls, "better").await],
            [4; 2]
        );
        assert_eq!(server.command(&["GET", &foreign]).text(), "whatever");
    });
}

/// A prefix that another format uses is not touched at all.
#[test]
fn two_formats_do_not_share_a_prefix() {
    let (server, prefix) = (server(Flavor::Valkey), prefix());
    let _ = server.command(&["SET", &format!("{prefix}format"), "2"]);
    block_on(async {
        let store = {
            let _inside = runtime().enter();
            RedisStore::builder(&server.url()).prefix(&*prefix).open().unwrap()
        };
        let text = store.connected().await.unwrap_err().to_string();
        assert!(text.contains("format 2") && text.contains("format 1"), "{text}");
        let error = take(&store, &slow("client", 5), "a", 1).await.unwrap_err();
        assert!(story(&error).contains("format 2"), "{}", story(&error));
        let keys = server.command(&["KEYS", &format!("{prefix}*")]).array();
        assert_eq!(keys.len(), 1);
    });
}

/// A record of policies from another version is refused as well.
#[test]
fn policies_of_an_unknown_format_are_refused() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let record = format!("{prefix}1p:{{client}}");
    let _ = server.command(&["HSET", &record, "5", "2k bucket 5 1 1 1 1", "newest", "5"]);
    block_on(async {
        let store = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        let error = take(&store, &slow("client", 5), "a", 1).await.unwrap_err();
        assert!(story(&error).contains("format 2"), "{}", story(&error));
    });
}

/// Keys are people's: the strangest of them are different buckets.
#[test]
fn the_strangest_keys_are_kept_apart() {
    let limit = slow("client", 100);
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

/// Quotas beyond what a double counts exactly are refused, not rounded; and so are more slots
/// than can be told from instants.
#[test]
fn what_cannot_be_counted_exactly_is_refused() {
    block_on(async {
        let store = store(server(Flavor::Redis)).await;
        for huge in [
            Policy::allowance((1 << 51) + 1),
            Policy::quota((1 << 51) + 1),
            Policy::concurrency((1 << 32) + 1, None),
        ] {
            let limit = Limit::named("huge", huge.unwrap()).unwrap();
            let error = take(&store, &limit, "a", 1).await.unwrap_err();
            assert!(error.is_callers_fault(), "{}", story(&error));
        }
        let slots = Limit::named("slots", Policy::concurrency(1 << 32, None).unwrap()).unwrap();
        granted(&store, &slots, "a", 1 << 31).await;
        granted(&store, &slots, "a", 1 << 30).await;
        assert_eq!(left(&store, &slots, "a").await, 1 << 30);
        let most = Limit::named("most", Policy::allowance(1 << 51).unwrap()).unwrap();
        assert_eq!(granted(&store, &most, "a", 1).await.outcomes[0].remaining, (1 << 51) - 1);
        assert!(!take(&store, &most, "a", u64::MAX).await.unwrap().is_allowed());
    });
}
