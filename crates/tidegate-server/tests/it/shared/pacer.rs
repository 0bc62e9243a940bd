//! Waiting on a shared store: only the heads of queues call it, and slots are leases.

use std::time::Duration;

use tidegate::Policy;
use tidegate::pacer::Pacer;
use tidegate_testkit::launch::{Flavor, RedisServer, wait_until};

use super::{Node, nodes};

/// Fifty waiters on two nodes, at 20 per second: all are granted in time, and only the heads of the
/// queues call the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_queue_heads_call_the_store() {
    let server = RedisServer::start(Flavor::Redis);
    let nodes = nodes(&server, 2).await;
    let policy = Policy::per_second(20).capacity(1).build().unwrap();
    let before = server.command_calls("evalsha");
    let mut waiters = Vec::new();
    let mut pacers = Vec::new();
    for node in &nodes {
        let limiter = node.engine.limiter("calls", policy).unwrap();
        let pacer = Pacer::builder(&node.engine).build();
        for _ in 0..25 {
            let (pacer, limiter) = (pacer.clone(), limiter.clone());
            waiters.push(tokio::spawn(async move {
                let claim = limiter.charge("key", 1);
                let permit = pacer.acquire([claim]).max_wait(Duration::from_secs(60)).await;
                permit.unwrap().waited()
            }));
        }
        pacers.push(pacer);
    }
    let mut longest = Duration::ZERO;
    for waiter in waiters {
        longest = longest.max(waiter.await.unwrap());
    }
    // 49 intervals of 50 ms, by the server's clock.
    assert!(longest >= Duration::from_millis(2_400), "{longest:?}");
    // One or two calls per grant; if all waiters called it would be hundreds.
    let calls = server.command_calls("evalsha") - before;
    assert!(calls <= 160, "{calls} calls for 50 grants");
}

/// A permit held longer than its lease keeps its slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_slots_are_renewed() {
    let server = RedisServer::start(Flavor::Redis);
    let nodes = nodes(&server, 2).await;
    let lease = Duration::from_millis(600);
    let policy = Policy::concurrency(1, Some(lease)).unwrap();
    let limiters: Vec<_> =
        nodes.iter().map(|node| node.engine.limiter("slots", policy).unwrap()).collect();
    let pacer = Pacer::builder(&nodes[0].engine).build();
    let permit = pacer.acquire([limiters[0].charge("key", 1)]).await.unwrap();
    let renewals = server.command_calls("evalsha");
    let server = std::sync::Arc::new(server);
    let watched = server.clone();
    // Three leases long. The renewals reach the store.
    let start = micros(&server);
    tokio::task::spawn_blocking(move || {
        wait_until("three leases to pass", || (micros(&watched) > start + 1_900_000).then_some(()));
    })
    .await
    .unwrap();
    assert!(server.command_calls("evalsha") > renewals);
    assert!(!limiters[1].take("key").await.unwrap().is_allowed());
    drop(permit);
    let other = Pacer::builder(&nodes[1].engine).build();
    let waited =
        other.acquire([limiters[1].charge("key", 1)]).max_wait(Duration::from_secs(10)).await;
    assert!(waited.is_ok(), "{waited:?}");
}

/// When a node dies, its slot is free after the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slot_of_a_dead_node_is_freed_after_its_lease() {
    let server = RedisServer::start(Flavor::Valkey);
    let policy = Policy::concurrency(1, Some(Duration::from_millis(500))).unwrap();
    let url = server.url();
    // Dropping a separate runtime simulates the death of a process.
    let dying = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let permit = runtime.block_on(async {
            let node = Node::on(&url).await;
            let limiter = node.engine.limiter("slots", policy).unwrap();
            let pacer = Pacer::builder(&node.engine).build();
            pacer.acquire([limiter.charge("key", 1)]).await.unwrap()
        });
        drop(runtime);
        std::mem::forget(permit);
    });
    dying.join().unwrap();
    let node = Node::on(&server.url()).await;
    let limiter = node.engine.limiter("slots", policy).unwrap();
    let pacer = Pacer::builder(&node.engine).build();
    let permit = pacer.acquire([limiter.charge("key", 1)]).max_wait(Duration::from_secs(10)).await;
    assert!(permit.is_ok(), "{permit:?}");
}

fn micros(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]).array();
    let mut words = time.into_iter().map(|word| word.text().parse::<u64>().unwrap());
    words.next().unwrap() * 1_000_000 + words.next().unwrap()
}
