//! Threads without a runtime: immediate decisions, and waiting.
//!
//! `cargo run -p tidegate-examples --bin sync`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::thread;
use std::time::Duration;

use anyhow::Result;
use tidegate::{DirectLimiter, Limiter, Policy};

fn main() -> Result<()> {
    // One bucket without a key, shared by threads: the fastest decision.
    let limiter = DirectLimiter::new(Policy::per_hour(10).burst(10).build()?)?;
    let allowed: usize = thread::scope(|scope| {
        let count = || (0..5).filter(|_| limiter.take(1).is_allowed()).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
    });
    println!("{allowed} of 20 decisions allowed");

    // Workers that wait for a permit. `blocking` blocks the thread, unlike `.await`.
    let limiter = Limiter::new(Policy::per_second(50).burst(1).build()?);
    thread::scope(|scope| {
        let work = || {
            let wait = limiter.wait("upload").max_wait(Duration::from_secs(30));
            wait.blocking().map(|permit| permit.waited())
        };
        let workers: Vec<_> = (0..5).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(Ok(waited)) => println!("a worker waited {} ms", waited.as_millis()),
                Ok(Err(error)) => println!("a worker gave up: {error}"),
                Err(_) => println!("a worker panicked"),
            }
        }
    });

    // A wait that would be too long fails immediately.
    let reports = Limiter::new(Policy::per_minute(1).build()?);
    let wait = || reports.wait("daily").max_wait(Duration::from_secs(1));
    drop(wait().blocking()?);
    match wait().blocking() {
        Ok(_) => println!("the second report may go"),
        Err(error) => println!("the second report may not go: {error}"),
    }
    Ok(())
}
