//! Everything above the store, on a real shared store: integrations, failure rules, waiting.

mod http;
mod integrations;
mod outage;
mod pacer;

use std::sync::Arc;
use std::time::Duration;

use tidegate::guard::GuardedStore;
use tidegate::{Engine, FailureRule, Policy};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::RedisServer;

/// A node with its own store and guard.
struct Node {
    guard: GuardedStore,
    engine: Engine,
}

impl Node {
    /// Creates a connected node. Must be called in a runtime.
    async fn on(url: &str) -> Self {
        let (node, store) = Self::with_store(url, FailureRule::Local);
        store.connected().await.unwrap();
        node
    }

    /// Creates a node without waiting for its connection.
    fn at(url: &str, rule: FailureRule) -> Self {
        Self::with_store(url, rule).0
    }

    fn with_store(url: &str, rule: FailureRule) -> (Self, Arc<RedisStore>) {
        let store = Arc::new(RedisStore::builder(url).open().unwrap());
        let guard = GuardedStore::builder(store.clone()).default_rule(rule).build().unwrap();
        let engine = Engine::on(guard.clone());
        (Self { guard, engine }, store)
    }
}

async fn nodes(server: &RedisServer, count: usize) -> Vec<Node> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(Node::on(&server.url()).await);
    }
    nodes
}

/// A bucket of `capacity` tokens that refills one token an hour.
fn slow(capacity: u64) -> Policy {
    Policy::per(1, Duration::from_secs(3_600)).capacity(capacity).build().unwrap()
}
