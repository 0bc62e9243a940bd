//! Policies of several nodes: changes, adoption, and lost records.
//!
//! In every test the first node is outdated: it has a limit that the second node has revised.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::{
    Charge, Correction, Limit, Operation, Policy, PolicyChange, Store as _, StoreResponse,
    StoreResponses,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, Proxy, RedisServer, wait_until};
use tidegate_testkit::subject::{block_on, execute};

use crate::fixture::{
    ConcurrentCallers, TimedStores, capacity, error_chain, granted, nodes, open, prefix, remaining,
    runtime, server, slow_bucket, take,
};

/// The limit, revised to the policy of another one.
fn revised(limit: &Limit, like: &Limit) -> Limit {
    limit.revise(*like.policy(), PolicyChange::KeepTokens).unwrap()
}

/// Two nodes. The first has the limit `y` with ten tokens; the second has raised it to twenty, and
/// has spent one token of the key `k`, which the first one has not used yet.
async fn one_outdated_node(server: &RedisServer) -> ([RedisStore; 2], Limit, String) {
    let (y, prefix) = (slow_bucket("y", 10), prefix());
    let stores: [RedisStore; 2] = nodes(server, &prefix).await;
    assert_eq!(remaining(&stores[0], &y, "other").await, 10);
    granted(&stores[1], &revised(&y, &slow_bucket("y", 20)), "k", 1).await;
    (stores, y, prefix)
}

/// Regression: a charge of zero only reports its bucket. A node that found it under a newer policy
/// had already spent the rest of the list, and spent it again after learning the policy.
#[test]
fn list_with_a_newer_policy_is_spent_once() {
    block_on(async {
        let ([outdated, _other], y, _) = one_outdated_node(server(Flavor::Redis)).await;
        let x = slow_bucket("x", 10);
        let list = [Charge::new(&x, "k", 1), Charge::new(&y, "k", 0)];
        let answer = execute(&outdated, Operation::Take(&list)).await.unwrap();
        let StoreResponse::Decision(decision) = answer else { panic!("{answer:?}") };
        let outcomes = decision.outcomes();
        assert_eq!((outcomes[0].remaining, outcomes[1].remaining), (9, 19));
        assert_eq!(outcomes[1].capacity, 20, "the newest policy is reported");
        assert_eq!(remaining(&outdated, &x, "k").await, 9);
    });
}

/// A full bucket is full under every policy, so nothing needs to be converted. The outdated node
/// must still learn the policy before anything of its submission is executed.
#[test]
fn full_bucket_of_a_newer_policy_is_spent_once() {
    let fast = |capacity| Policy::per_second(1_000).capacity(capacity).build().unwrap();
    let y = Limit::named("y", fast(10)).unwrap();
    let x = slow_bucket("x", 10);
    let stores = block_on(TimedStores::with_nodes(Flavor::Redis, 2));
    let [outdated, updated] = stores.nodes() else { panic!("two nodes") };
    block_on(async {
        assert_eq!(remaining(outdated, &y, "other").await, 10);
        granted(updated, &y.revise(fast(20), PolicyChange::KeepTokens).unwrap(), "k", 1).await;
        stores.set(TimedStores::ORIGIN + Duration::from_secs(1));
        let (first, second) = ([Charge::new(&y, "k", 1)], [Charge::new(&x, "k", 1)]);
        let mut answers = StoreResponses::new();
        outdated.submit(&[Operation::Take(&first), Operation::Take(&second)], &mut answers).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(
            [remaining(outdated, &y, "k").await, remaining(outdated, &x, "k").await],
            [19, 9]
        );
    });
}

/// Regression: a refund in a list with a newer policy was given twice.
#[test]
fn list_with_a_newer_policy_is_settled_once() {
    block_on(async {
        let ([outdated, _other], y, _) = one_outdated_node(server(Flavor::Valkey)).await;
        let x = slow_bucket("x", 10);
        granted(&outdated, &x, "k", 8).await;
        let back = [Correction::new(&x, "k", -3), Correction::new(&y, "k", 0)];
        let settle = Operation::Settle { corrections: &back, receipt: None };
        let answer = execute(&outdated, settle).await.unwrap();
        let StoreResponse::Settled(settlement) = answer else { panic!("{answer:?}") };
        assert_eq!(settlement.outcomes[0].remaining, 5);
        assert_eq!(remaining(&outdated, &x, "k").await, 5);
    });
}

/// With slots, the lease of the first attempt would have been leaked.
#[test]
fn list_with_a_newer_policy_takes_one_slot() {
    let calls = Limit::named("calls", Policy::concurrency(5, None).unwrap()).unwrap();
    block_on(async {
        let ([outdated, _other], y, _) = one_outdated_node(server(Flavor::Redis)).await;
        let list = [Charge::new(&calls, "k", 1), Charge::new(&y, "k", 0)];
        execute(&outdated, Operation::Take(&list)).await.unwrap();
        assert_eq!(remaining(&outdated, &calls, "k").await, 4);
    });
}

/// Slots carry no policy, so operations do not reveal a newer one; heartbeats do.
#[test]
fn heartbeat_brings_a_new_number_of_slots() {
    let calls = |slots| Policy::concurrency(slots, None).unwrap();
    let limit = Limit::named("calls", calls(10)).unwrap();
    let fewer = limit.revise(calls(2), PolicyChange::KeepTokens).unwrap();
    let [outdated, updated]: [RedisStore; 2] = block_on(nodes(server(Flavor::Redis), &prefix()));
    block_on(async {
        granted(&outdated, &limit, "k", 1).await;
        granted(&updated, &fewer, "k", 1).await;
        assert!(!take(&updated, &fewer, "k", 1).await.unwrap().is_allowed());
    });
    wait_until_adopted(&outdated, &limit, 2);
    assert!(!block_on(take(&outdated, &limit, "k", 1)).unwrap().is_allowed());
}

/// A bucket that has become slots reveals nothing either.
#[test]
fn heartbeat_brings_a_new_kind_of_limit() {
    let limit = slow_bucket("calls", 10);
    let slots = Policy::concurrency(2, None).unwrap();
    let slots = limit.revise(slots, PolicyChange::KeepTokens).unwrap();
    let [outdated, updated]: [RedisStore; 2] = block_on(nodes(server(Flavor::Valkey), &prefix()));
    block_on(async {
        granted(&outdated, &limit, "k", 1).await;
        granted(&updated, &slots, "k", 2).await;
    });
    wait_until_adopted(&outdated, &limit, 2);
    assert!(!block_on(take(&outdated, &limit, "k", 1)).unwrap().is_allowed());
}

/// Waits until a node decides by a policy of this capacity.
fn wait_until_adopted(store: &RedisStore, limit: &Limit, expected: u64) {
    wait_until("the newer policy to be adopted", || {
        (block_on(capacity(store, limit, "elsewhere")) == expected).then_some(())
    });
}

/// Regression: the server loses everything, and an outdated node finds a bucket under a policy that
/// no record has. It failed until another node wrote the policy again; now such a bucket counts as
/// empty, which never favours the caller.
#[test]
fn lost_record_causes_no_errors() {
    let server = RedisServer::start(Flavor::Redis);
    block_on(async {
        let ([outdated, updated], y, _) = one_outdated_node(&server).await;
        let y2 = revised(&y, &slow_bucket("y", 20));
        let _ = server.command(&["FLUSHALL"]);
        granted(&updated, &y2, "k", 1).await;
        let mut allowed = 1;
        for _ in 0..25 {
            for (store, limit) in [(&outdated, &y), (&updated, &y2)] {
                allowed += u64::from(take(store, limit, "k", 1).await.unwrap().is_allowed());
            }
        }
        assert!(allowed <= 20, "{allowed} of twenty");
        granted(&outdated, &y, "a bucket of its own", 1).await;
    });
}

/// A node that knows the newest policy confirms it with every heartbeat, which restores a lost
/// record and brings the policy to outdated nodes.
#[test]
fn heartbeat_restores_a_lost_record() {
    let server = RedisServer::start(Flavor::Valkey);
    let ([outdated, _other], y, prefix) = block_on(one_outdated_node(&server));
    let newest = || server.command(&["HGET", &format!("{prefix}1p:{{y}}"), "newest"]);
    let before = newest();
    let _ = server.command(&["FLUSHALL"]);
    wait_until("the record to be written again", || (newest() == before).then_some(()));
    wait_until_adopted(&outdated, &y, 20);
}

/// A lagging replica has been promoted: its record lacks the newest policy, but a bucket is under
/// it. The bucket loses its tokens, but no operation fails.
#[test]
fn lost_revision_causes_no_errors() {
    let server = RedisServer::start(Flavor::Redis);
    let (y, prefix) = (slow_bucket("y", 10), prefix());
    let y2 = revised(&y, &slow_bucket("y", 20));
    let record = format!("{prefix}1p:{{y}}");
    let newest = || server.command(&["HGET", &record, "newest"]).text();
    let [outdated, updated]: [RedisStore; 2] = block_on(nodes(&server, &prefix));
    let lost = block_on(async {
        granted(&outdated, &y, "k", 1).await;
        let before = newest();
        granted(&updated, &y2, "k", 1).await;
        let lost = newest();
        let _ = server.command(&["HDEL", &record, &lost]);
        let _ = server.command(&["HSET", &record, "newest", &before]);
        assert!(!take(&outdated, &y, "k", 9).await.unwrap().is_allowed());
        assert!(remaining(&outdated, &y, "k").await <= 8);
        assert!(remaining(&updated, &y2, "k").await <= 8);
        lost
    });
    wait_until("the policy to be written again", || (newest() == lost).then_some(()));
}

/// Regression: a hot key gets a new policy over a slow connection. Callers under the old policy
/// change the bucket between any two steps of the conversion, which used to succeed only by luck.
#[test]
fn hot_key_is_converted_under_load() {
    const BEFORE: u64 = 400_000;
    let server = RedisServer::start(Flavor::Redis);
    let proxy = Proxy::start(server.address());
    let (y, prefix) = (slow_bucket("y", BEFORE), prefix());
    let y2 = revised(&y, &slow_bucket("y", BEFORE + 1));
    let stop = Arc::new(AtomicBool::new(false));
    let spent = block_on(async {
        let outdated = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        let url = server.url_at(proxy.address());
        let updated = open(RedisStore::builder(&url).prefix(&*prefix)).await;
        proxy.set_delay(Duration::from_millis(2));
        granted(&outdated, &y, "k", 1).await;
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let (store, limit, stop) = (outdated.clone(), y.clone(), stop.clone());
                runtime().spawn(async move {
                    let mut spent = 0;
                    while !stop.load(Ordering::Relaxed) {
                        granted(&store, &limit, "k", 1).await;
                        spent += 1;
                    }
                    spent
                })
            })
            .collect();
        for _ in 0..5 {
            granted(&updated, &y2, "k", 1).await;
        }
        stop.store(true, Ordering::Relaxed);
        let mut spent = 6;
        for caller in callers {
            spent += caller.await.unwrap();
        }
        assert_eq!(capacity(&outdated, &y, "k").await, BEFORE + 1);
        assert_eq!(remaining(&outdated, &y, "k").await, remaining(&updated, &y2, "k").await);
        spent + remaining(&outdated, &y, "k").await
    });
    // A conversion keeps whole tokens, so at most a fraction of one is lost.
    assert!((BEFORE - 1..=BEFORE).contains(&spent), "{spent}");
}

/// Two hundred callers find a newer policy concurrently. Only one of them reads it.
#[test]
fn newer_policy_is_read_once_for_concurrent_callers() {
    let server = RedisServer::start(Flavor::Redis);
    let y = slow_bucket("y", 1_000);
    let y2 = revised(&y, &slow_bucket("y", 900));
    block_on(async {
        let [outdated, updated]: [RedisStore; 2] = nodes(&server, &prefix()).await;
        granted(&outdated, &y, "a", 1).await;
        granted(&updated, &y2, "a", 1).await;
        let before = server.command_calls("hgetall");
        let callers = ConcurrentCallers::on(std::iter::repeat_n(&outdated, 200), &y, 1);
        assert_eq!(callers.allowed().await, 200);
        assert_eq!(remaining(&updated, &y2, "a").await, 699);
        let reads = server.command_calls("hgetall") - before;
        assert!(reads <= 2, "{reads} reads of the record");
    });
}

/// A limit remembers 256 revisions before the current one, and so does its record. After more
/// revisions than that between two uses of a bucket, the policy is still right; the bucket keeps its
/// tokens, or is empty if its policy is no longer known.
#[test]
fn hundreds_of_revisions_between_two_uses() {
    block_on(async {
        let [node]: [RedisStore; 1] = nodes(server(Flavor::Redis), &prefix()).await;
        for revisions in [254, 255, 256, 257, 300] {
            let mut limit = slow_bucket(&format!("y{revisions}"), 1_000);
            granted(&node, &limit, "k", 1).await;
            for number in 1..=revisions {
                limit = revised(&limit, &slow_bucket("y", 2_000 + number));
            }
            let decision = take(&node, &limit, "k", 1).await.unwrap();
            let outcome = decision.outcomes()[0];
            assert_eq!(outcome.capacity, 2_000 + revisions);
            let remembered = outcome.remaining == 998;
            let forgotten = outcome.remaining == 0 && !decision.is_allowed();
            assert!(remembered || (forgotten && revisions > 256), "{revisions}: {outcome:?}");
        }
    });
}

/// Nodes reconfigured one after the other have the same revisions. The second must not add newer
/// ones, which would convert every bucket again.
#[test]
fn revisions_of_another_node_are_not_added_again() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let first = slow_bucket("y", 10);
    let second = revised(&first, &slow_bucket("y", 20));
    let third = revised(&second, &slow_bucket("y", 30));
    let back = revised(&third, &slow_bucket("y", 10));
    let record = format!("{prefix}1p:{{y}}");
    let record_fields = || server.command(&["HGETALL", &record]).array().len();
    block_on(async {
        let [first_node, second_node]: [RedisStore; 2] = nodes(server, &prefix).await;
        granted(&first_node, &first, "a", 1).await;
        granted(&second_node, &first, "b", 1).await;
        for limit in [&second, &third] {
            granted(&first_node, limit, "a", 1).await;
        }
        // Three policies and the number of the newest, each with name and value.
        assert_eq!(record_fields(), 8);
        granted(&second_node, &third, "b", 1).await;
        assert_eq!(record_fields(), 8);
        // An earlier policy is still a new revision.
        granted(&second_node, &back, "b", 1).await;
        granted(&first_node, &back, "a", 1).await;
        assert_eq!(record_fields(), 10);
        assert_eq!(
            [remaining(&first_node, &back, "a").await, remaining(&second_node, &back, "b").await],
            [6, 7]
        );
    });
}

/// An uncountable policy is refused before it is recorded, where it would affect all nodes.
#[test]
fn uncountable_policy_is_not_recorded() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let total = Limit::named("total", Policy::allowance(10).unwrap()).unwrap();
    let huge =
        total.revise(Policy::allowance(u64::MAX).unwrap(), PolicyChange::KeepTokens).unwrap();
    block_on(async {
        let [first_node, second_node]: [RedisStore; 2] = nodes(server, &prefix).await;
        granted(&first_node, &total, "k", 1).await;
        let record = || server.command(&["HGETALL", &format!("{prefix}1p:{{total}}")]);
        let before = record();
        let error = take(&second_node, &huge, "k", 1).await.unwrap_err();
        assert!(error.is_caller_error(), "{}", error_chain(&error));
        assert_eq!(record(), before);
        assert_eq!(granted(&first_node, &total, "k", 1).await.outcomes[0].remaining, 8);
    });
}
