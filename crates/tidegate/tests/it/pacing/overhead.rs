//! R302: a permit that does not have to wait costs microseconds.

use std::time::{Duration, Instant};

use tidegate::pacer::Pacer;
use tidegate::{Engine, Policy};

/// The bound for a build with optimizations. Without them, everything takes several times as long.
const BOUND: Duration = Duration::from_micros(if cfg!(debug_assertions) { 25 } else { 1 });

/// The fastest of many cycles counts, because other programs only make a cycle slower. A timer, a
/// thread or a wake-up in the path would be in every one of them.
#[test]
#[expect(clippy::disallowed_methods, reason = "measures the time that a cycle really takes")]
fn a_permit_without_a_wait_costs_microseconds() {
    let engine = Engine::new();
    let limiter = engine.limiter("calls", Policy::per_second(1 << 30).build().unwrap()).unwrap();
    let pacer = Pacer::builder(&engine).concurrency(8).build();
    let cycle = || drop(pacer.acquire([limiter.charge("k", 1)]).now().unwrap());
    cycle();
    let fastest = (0..2_000).map(|_| {
        let started = Instant::now();
        cycle();
        started.elapsed()
    });
    let fastest = fastest.min().unwrap();
    assert!(fastest < BOUND, "a cycle took {fastest:?}");
}
