//! The layer over real sockets: a real server, a real client, and a manual clock.

mod admission;
mod cleanup;
mod contract;
mod faulty_stores;
mod missing_keys;
mod modes;
mod responses;
mod routes;
mod settlement;
mod store_failures;
mod streams;
mod test_server;

use std::sync::Arc;

use tidegate::clock::ManualClock;
use tidegate::{Engine, Limiter, MemoryStore, Policy};
use tidegate_core::WallTime;
use tidegate_http::key::{RequestKey, header};

/// An engine on a local store with a manual clock.
fn engine() -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    clock.set_wall(WallTime::from_secs(1_794_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    (Engine::on(Arc::new(store)), clock)
}

/// A limit of one per second.
fn limiter(engine: &Engine, name: &str, capacity: u64) -> Limiter {
    engine.limiter(name, Policy::per_second(1).capacity(capacity).build().unwrap()).unwrap()
}

/// Keys by the header `x-user`.
fn by_user() -> RequestKey {
    header("x-user")
}

fn remaining(limiter: &Limiter, key: &str) -> u64 {
    limiter.peek(key).cost(0).now().unwrap().remaining()
}
