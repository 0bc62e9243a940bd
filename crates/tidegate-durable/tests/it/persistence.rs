//! What survives the end of the runtime, and what concurrent callers get.

use futures_util::future::join_all;
use tidegate_core::{Limit, Policy, PolicyChange, Store as _};
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
