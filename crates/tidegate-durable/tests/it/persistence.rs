//! What survives the end of the runtime, and what concurrent callers get.

use futures_util::future::join_all;
use tidegate_core::{
    Charge, Limit, Operation, Policy, PolicyChange, Store as _, StoreResponse, StoreResponses,
};
use tidegate_durable::DurableStore;
use tidegate_testkit::launch::Workerd;

use crate::fixture::{SECRET, limit, store, take};

const START_NS: u64 = 1_800_000_000_000_000_000;

fn workerd() -> Workerd {
    Workerd::builder().secret(SECRET).manual_clock().start()
}

/// Uses up connections that the end of the runtime has closed: requests on them fail, because
/// nothing is sent twice.
async fn reconnect(store: &DurableStore) {
    for _ in 0..10 {
        if store.probe().await.is_ok() {
            return;
        }
    }
    panic!("the runtime does not respond");
}

#[tokio::test]
async fn buckets_and_policies_survive_a_restart_and_a_kill() {
    let workerd = workerd();
    let store = store(&workerd, 128);
    store.set_manual_time(START_NS);
    let client = limit("client");
    assert_eq!(take(&store, &client, "a", 4).await.unwrap().remaining(), 6);
    let smaller = Policy::per_second(1).capacity(5).build().unwrap();
    let revised = client.revise(smaller, PolicyChange::KeepTokens).unwrap();
    assert_eq!(take(&store, &revised, "b", 1).await.unwrap().remaining(), 4);
    workerd.stop();
    workerd.restart();
    reconnect(&store).await;
    assert_eq!(take(&store, &client, "a", 1).await.unwrap().remaining(), 5);
    workerd.kill();
    workerd.restart();
    reconnect(&store).await;
    assert_eq!(take(&store, &client, "a", 1).await.unwrap().remaining(), 4);
    let again = take(&store, &revised, "b", 0).await.unwrap();
    assert_eq!((again.remaining(), again.outcomes()[0].capacity), (4, 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_tokens_admit_ten_of_fifteen_concurrent_takes_of_two_clients() {
    let workerd = workerd();
    let stores = [store(&workerd, 128), store(&workerd, 128)];
    for store in &stores {
        store.set_manual_time(START_NS);
    }
    let limit = limit("client");
    let takes = (0..15).map(|index| take(&stores[index % 2], &limit, "a", 1));
    let decisions = join_all(takes).await;
    let allowed = decisions.iter().filter(|decision| decision.as_ref().unwrap().is_allowed());
    assert_eq!(allowed.count(), 10);
}

#[tokio::test]
async fn limits_are_shared_between_clients_and_newest_policy_applies() {
    let workerd = workerd();
    let (one, other) = (store(&workerd, 128), store(&workerd, 128));
    for store in [&one, &other] {
        store.set_manual_time(START_NS);
    }
    let ten = limit("client");
    assert_eq!(take(&one, &ten, "a", 1).await.unwrap().remaining(), 9);
    assert_eq!(take(&other, &ten, "a", 1).await.unwrap().remaining(), 8);
    // A client that was restarted with another policy.
    let four = Limit::named("client", Policy::per_second(1).capacity(4).build().unwrap()).unwrap();
    let restarted = store(&workerd, 128);
    restarted.set_manual_time(START_NS);
    assert_eq!(take(&restarted, &four, "a", 1).await.unwrap().remaining(), 3);
    let adopted = take(&one, &ten, "a", 1).await.unwrap();
    assert_eq!((adopted.remaining(), adopted.outcomes()[0].capacity), (2, 4));
}

/// A shard learns of a change from the first request that brings it. A program that was started
/// before the change must not undo it in a shard that it reaches later, not even with its first use
/// of the limit.
#[tokio::test]
async fn policy_of_a_program_that_did_not_see_the_change_stays_replaced() {
    let workerd = workerd();
    let (one, other) = (store(&workerd, 128), store(&workerd, 128));
    let minute = 60_000_000_000;
    for store in [&one, &other] {
        store.set_manual_time(START_NS);
    }
    let original = limit("client");
    assert_eq!(take(&one, &original, "seen by both", 1).await.unwrap().remaining(), 9);
    assert_eq!(take(&other, &original, "seen by both", 1).await.unwrap().remaining(), 8);
    for store in [&one, &other] {
        store.set_manual_time(START_NS + minute);
    }
    let smaller = Policy::per_second(1).capacity(4).build().unwrap();
    let revised = original.revise(smaller, PolicyChange::KeepTokens).unwrap();
    for key in ["seen by both", "user:1", "user:2", "user:3"] {
        assert_eq!(take(&one, &revised, key, 1).await.unwrap().remaining(), 3, "{key}");
        assert_eq!(take(&other, &original, key, 1).await.unwrap().remaining(), 2, "{key}");
        assert_eq!(take(&one, &revised, key, 1).await.unwrap().remaining(), 1, "{key}");
    }
    let original = limit("used-by-one");
    let revised = original.revise(smaller, PolicyChange::KeepTokens).unwrap();
    assert_eq!(take(&one, &original, "a", 1).await.unwrap().remaining(), 9);
    for store in [&one, &other] {
        store.set_manual_time(START_NS + 2 * minute);
    }
    assert_eq!(take(&one, &revised, "a", 1).await.unwrap().remaining(), 3);
    assert_eq!(take(&other, &original, "a", 1).await.unwrap().remaining(), 2);
    assert_eq!(take(&one, &revised, "a", 1).await.unwrap().remaining(), 1);
}

/// Operations of one call on several shards do not wait for each other, unless they share a key.
#[tokio::test]
async fn lists_across_shards_of_one_call_are_decided_as_if_one_after_the_other() {
    let workerd = workerd();
    let store = store(&workerd, 128);
    store.set_manual_time(START_NS);
    let limit = limit("client");
    let keys: Vec<String> = (0..40).map(|number| format!("user:{number}")).collect();
    let mut lists: Vec<[Charge<'_>; 2]> = Vec::new();
    for pair in keys.chunks_exact(2) {
        lists.push([Charge::new(&limit, &*pair[0], 1), Charge::new(&limit, &*pair[1], 6)]);
    }
    // The second list with a key finds what the first has left.
    lists.push([Charge::new(&limit, "user:0", 9), Charge::new(&limit, "user:2", 9)]);
    lists.push([Charge::new(&limit, "user:1", 5), Charge::new(&limit, "user:4", 1)]);
    let single = [Charge::new(&limit, "user:4", 8)];
    let mut operations: Vec<_> = lists.iter().map(|list| Operation::Take(list)).collect();
    operations.push(Operation::Take(&single));
    let mut responses = StoreResponses::new();
    store.submit(&operations, &mut responses).await;
    let remaining = |response: &Result<StoreResponse, _>| match response {
        Ok(StoreResponse::Decision(decision)) => {
            let outcomes = decision.outcomes().iter().map(|outcome| outcome.remaining);
            (decision.is_allowed(), outcomes.collect::<Vec<_>>())
        }
        other => panic!("not a decision: {other:?}"),
    };
    let found: Vec<_> = responses.iter().map(remaining).collect();
    assert_eq!(found[..20], vec![(true, vec![9, 4]); 20]);
    assert_eq!(found[20], (true, vec![0, 0]));
    assert_eq!(found[21], (false, vec![4, 9]), "user:1 has 4 left");
    assert_eq!(found[22], (true, vec![1]));
}
