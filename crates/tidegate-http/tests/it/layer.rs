//! The layer over real sockets: a real server, a real client, and a clock that is moved by hand.

mod admission;
mod answers;
mod contract;
mod debts;
mod door;
mod modes;
mod routes;
mod settling;
mod stores;
mod streams;
mod troubles;
mod unknown;

use std::sync::Arc;

use tidegate::clock::ManualClock;
use tidegate::{Engine, Limiter, MemoryStore, Policy};
use tidegate_core::WallTime;
use tidegate_http::key::{RequestKey, header};

/// A store whose time stands still.
fn engine() -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    clock.set_wall(WallTime::from_secs(1_794_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    (Engine::on(Arc::new(store)), clock)
}

/// A limit of one a second.
fn limiter(engine: &Engine, name: &str, capacity: u64) -> Limiter {
    engine.limiter(name, Policy::per_second(1).capacity(capacity).build().unwrap()).unwrap()
}

/// Keys by the header `x-user`.
fn by_user() -> RequestKey {
    header("x-user")
}

fn left(limiter: &Limiter, key: &str) -> u64 {
    limiter.peek(key).cost(0).now().unwrap().remaining()
}
