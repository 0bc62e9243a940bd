//! How operations become requests that the Worker accepts.

use tidegate_core::{
    Charge, Key, Limit, Operation, Policy, PolicyChange, Store as _, StoreResponse, StoreResponses,
};
use tidegate_durable::DurableStore;
use tidegate_shard::message::{MAX_BATCH_BYTES, OperationMessage, PolicySync};
use tidegate_testkit::launch::Workerd;

use crate::fixture::{SECRET, limit, store};

const START_NS: u64 = 1_800_000_000_000_000_000;

/// Number of revisions that a limit keeps.
const REVISIONS: u64 = 255;

fn start() -> (Workerd, DurableStore) {
    let workerd = Workerd::builder().secret(SECRET).manual_clock().start();
    let store = store(&workerd, 128);
    store.set_manual_time(START_NS);
    (workerd, store)
}

fn policy(capacity: u64) -> Policy {
    Policy::per_second(1).capacity(capacity).build().unwrap()
}

/// Returns a limit with as many revisions as it can have, the last one of 1,000 tokens.
fn revised(name: &str) -> Limit {
    let all = (1..REVISIONS).map(|number| policy(1_000_000 + number)).chain([policy(1_000)]);
    all.fold(limit(name), |limit, policy| limit.revise(policy, PolicyChange::KeepTokens).unwrap())
}

fn key(text: &str) -> Key<'_> {
    Key::new(text).in_group("one shard")
}

/// Executes takes that are longer than a request may be, with all that a shard could need in each of
/// them, and checks that each is allowed.
async fn all_allowed(store: &DurableStore, lists: &[Vec<Charge<'_>>]) {
    let operations: Vec<_> = lists.iter().map(|list| Operation::Take(list)).collect();
    let message = |operation: &Operation<'_>| {
        OperationMessage::new(operation, |_| PolicySync::default()).unwrap()
    };
    let lengths = operations.iter().map(|one| serde_json::to_vec(&message(one)).unwrap().len());
    assert!(lengths.sum::<usize>() > MAX_BATCH_BYTES, "too short for this test");
    let mut responses = StoreResponses::new();
    store.submit(&operations, &mut responses).await;
    assert_eq!(responses.len(), operations.len());
    for (index, response) in responses.iter().enumerate() {
        match response {
            Ok(StoreResponse::Decision(decision)) if decision.is_allowed() => {
                let known = decision.outcomes().iter().all(|outcome| outcome.capacity == 1_000);
                assert!(known, "operation {index}: {decision:?}");
            }
            other => panic!("operation {index}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn long_lists_of_one_call_become_several_requests() {
    let (_workerd, store) = start();
    let limit = Limit::named("a", policy(1_000)).unwrap();
    let keys: Vec<_> = (0..16).map(|number| format!("{number:0>120}")).collect();
    let list: Vec<_> = keys.iter().map(|name| Charge::new(&limit, key(name), 1)).collect();
    all_allowed(&store, &vec![list; 64]).await;
}

#[tokio::test]
async fn history_of_a_limit_is_in_a_request_once() {
    let (_workerd, store) = start();
    let limit = revised("a");
    all_allowed(&store, &vec![vec![Charge::new(&limit, key("k"), 1)]; 11]).await;
}

/// With their histories, the limits of this list are longer than a request may be.
#[tokio::test]
async fn list_whose_histories_do_not_fit_is_sent_without_them() {
    let (_workerd, store) = start();
    let limits: Vec<_> = (0..16).map(|number| revised(&format!("limit-{number}"))).collect();
    let list: Vec<_> = limits.iter().map(|limit| Charge::new(limit, key("k"), 1)).collect();
    all_allowed(&store, &[list]).await;
}

#[tokio::test]
async fn history_reaches_every_shard_of_a_list_and_is_sent_once() {
    let (_workerd, store) = start();
    let limit = revised("a");
    let keys: Vec<_> = (0..16).map(|number| format!("user:{number}")).collect();
    let list: Vec<_> = keys.iter().map(|name| Charge::new(&limit, Key::new(name), 1)).collect();
    all_allowed(&store, &[list]).await;
}

/// The Worker repeats the charges of a list for each shard; its own calls may be longer than a
/// request.
#[tokio::test]
async fn longest_list_across_shards_is_accepted() {
    let (_workerd, store) = start();
    let limit = Limit::named("a", policy(1_000)).unwrap();
    // Control characters take six bytes each in JSON.
    let name = |number: usize| format!("{}{number:0>4}", "\u{1}".repeat(1_020));
    let (names, groups): (Vec<_>, Vec<_>) =
        (0..16).map(|number| (name(number), name(number / 15))).unzip();
    let list: Vec<_> = names
        .iter()
        .zip(&groups)
        .map(|(name, group)| Charge::new(&limit, Key::new(name).in_group(group), 1))
        .collect();
    let operation = [Operation::Take(&list)];
    let mut responses = StoreResponses::new();
    store.submit(&operation, &mut responses).await;
    match responses.first() {
        Some(Ok(StoreResponse::Decision(decision))) => assert!(decision.is_allowed()),
        other => panic!("{other:?}"),
    }
}
