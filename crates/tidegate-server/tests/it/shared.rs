//! Everything above a store, on a real shared one: doors, failure rules, waiting.

mod doors;
mod http;
mod outage;
mod pacer;

use std::sync::Arc;
use std::time::Duration;

use tidegate::guard::Guarded;
use tidegate::{Engine, FailureRule, Policy, Store};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::RedisServer;

/// A node: a store of its own, behind a guard of its own.
struct Node {
    guard: Guarded<RedisStore>,
    engine: Engine<dyn Store>,
}

impl Node {
    /// A node on this server, connected. To be called in a runtime.
    async fn on(url: &str) -> Self {
        let node = Self::at(url, FailureRule::Local);
        node.guard.store().connected().await.unwrap();
        node
    }

    /// A node that has not looked for its server yet.
    fn at(url: &str, rule: FailureRule) -> Self {
        let store = RedisStore::builder(url).open().unwrap();
        let guard = Guarded::builder(Arc::new(store)).default_rule(rule).build().unwrap();
        let shared: Arc<dyn Store> = Arc::new(guard.clone());
        Self { guard, engine: Engine::on(shared) }
    }
}

async fn nodes(server: &RedisServer, count: usize) -> Vec<Node> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(Node::on(&server.url()).await);
    }
    nodes
}

/// So many tokens, and one more in an hour.
fn slow(capacity: u64) -> Policy {
    Policy::per(1, Duration::from_secs(3_600)).capacity(capacity).build().unwrap()
}
