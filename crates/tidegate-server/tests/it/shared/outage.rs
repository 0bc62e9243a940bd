//! Stores that die or hang under load, behind the guard.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate::FailureRule;
use tidegate_testkit::launch::{Flavor, RedisServer, wait_until};
use tokio::time::Instant;

use super::{Node, nodes, slow};

/// No call exceeds its timeout, and after a few calls the breaker makes decisions immediate.
/// Virtual time advances only while all tasks wait.
#[tokio::test]
async fn a_hanging_store_does_not_delay_calls() {
    let server = RedisServer::start(Flavor::Redis);
    let node = Node::on(&server.url()).await;
    let limiter = node.engine.limiter("client", slow(1_000)).unwrap();
    assert!(limiter.take("a").await.unwrap().is_allowed());
    server.stop();
    tokio::time::pause();
    let mut waits = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        let decision = limiter.take("a").await.unwrap();
        assert_eq!(decision.degraded(), Some(FailureRule::Local));
        waits.push(start.elapsed());
    }
    let most = Duration::from_millis(51);
    assert!(waits.iter().all(|waits| *waits <= most), "{waits:?}");
    // The breaker opens after three.
    assert!(waits[..3].iter().all(|waits| *waits >= Duration::from_millis(50)), "{waits:?}");
    assert!(waits[3..].iter().all(Duration::is_zero), "{waits:?}");
    assert!(!node.guard.is_up());
    tokio::time::resume();
    server.cont();
    wait_for(&node, true).await;
    let decision = limiter.take("a").await.unwrap();
    assert_eq!(decision.degraded(), None);
    // A call that timed out may have been executed once; none was sent again.
    assert!((995..=998).contains(&decision.remaining()), "{}", decision.remaining());
}

/// When the store is killed under load, every call is still decided; after the restart decisions
/// are exact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_are_exact_after_a_crash() {
    let server = RedisServer::start(Flavor::Redis);
    let nodes = nodes(&server, 2).await;
    // A node that does not know of the other would enforce the whole limit.
    wait_until_all_known(&nodes).await;
    let mut callers = Vec::new();
    for node in &nodes {
        let limiter = node.engine.limiter("client", slow(100)).unwrap();
        for _ in 0..4 {
            let limiter = limiter.clone();
            callers.push(tokio::spawn(async move {
                let (mut allowed, mut degraded) = (0_u64, 0_u64);
                while degraded < 50 {
                    let decision = limiter.take("a").await.unwrap();
                    allowed += u64::from(decision.is_allowed());
                    degraded += u64::from(decision.degraded().is_some());
                }
                allowed
            }));
        }
    }
    server.kill();
    let mut allowed = 0;
    for caller in callers {
        allowed += caller.await.unwrap();
    }
    // Once by the store, and once by the local shares of both.
    assert!(allowed <= 200, "{allowed}");
    server.restart();
    for node in &nodes {
        wait_for(node, true).await;
    }
    let mut allowed = 0;
    for round in 0..15 {
        let limiter = nodes[round % 2].engine.limiter("other", slow(10)).unwrap();
        let decision = limiter.take("a").await.unwrap();
        assert_eq!(decision.degraded(), None);
        allowed += u64::from(decision.is_allowed());
    }
    assert_eq!(allowed, 10);
}

/// Three nodes without their store enforce a third each. Since they knew of each other, they do not
/// exceed the limit together.
#[tokio::test]
async fn nodes_without_a_store_share_the_limit() {
    let server = RedisServer::start(Flavor::Redis);
    let nodes = nodes(&server, 3).await;
    wait_until_all_known(&nodes).await;
    server.kill();
    let mut allowed = Vec::new();
    for node in &nodes {
        let limiter = node.engine.limiter("client", slow(30)).unwrap();
        let mut own = 0;
        for _ in 0..40 {
            let decision = limiter.take("a").await.unwrap();
            assert_eq!(decision.degraded(), Some(FailureRule::Local));
            own += u64::from(decision.is_allowed());
        }
        allowed.push(own);
    }
    assert_eq!(allowed, [10, 10, 10]);
}

/// A node that starts without its store follows the failure rule until the store is available.
#[tokio::test]
async fn a_node_can_start_without_its_store() {
    let server = RedisServer::start(Flavor::Valkey);
    server.kill();
    for rule in [FailureRule::Local, FailureRule::Open, FailureRule::Closed] {
        let node = Node::at(&server.url(), rule);
        let limiter = node.engine.limiter("client", slow(2)).unwrap();
        let decision = limiter.take("a").await.unwrap();
        assert_eq!(decision.degraded(), Some(rule));
        assert_eq!(decision.is_allowed(), rule != FailureRule::Closed);
    }
    let node = Node::at(&server.url(), FailureRule::Closed);
    let limiter = node.engine.limiter("client", slow(2)).unwrap();
    assert!(!limiter.take("a").await.unwrap().is_allowed());
    server.restart();
    let decision = loop {
        let decision = limiter.take("a").await.unwrap();
        if decision.degraded().is_none() {
            break decision;
        }
        tokio::task::yield_now().await;
    };
    assert!(decision.is_allowed());
    assert_eq!(decision.remaining(), 1);
}

async fn wait_for(node: &Node, is_up: bool) {
    let guard = node.guard.clone();
    let wait = move || wait_until("the breaker", || (guard.is_up() == is_up).then_some(()));
    tokio::task::spawn_blocking(wait).await.unwrap();
}

async fn wait_until_all_known(nodes: &[Node]) {
    use tidegate::Store as _;
    let guards: Vec<_> = nodes.iter().map(|node| node.guard.clone()).collect();
    let met = move || {
        let met = |nodes: NonZeroU32| usize::try_from(nodes.get()) == Ok(guards.len());
        guards.iter().all(|guard| guard.nodes().is_some_and(met)).then_some(())
    };
    tokio::task::spawn_blocking(move || wait_until("all nodes to meet", met)).await.unwrap();
}
