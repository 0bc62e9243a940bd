//! Threads without a runtime: deciding at once, and waiting in turn.
//!
//! `cargo run -p tidegate-examples --bin sync`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::thread;
use std::time::Duration;

use anyhow::Result;
use tidegate::pacer::Pacer;
use tidegate::{DirectLimiter, Limiter, Policy};

fn main() -> Result<()> {
    // One bucket without a key, shared by threads: the fastest decision there is.
    let limiter =
        DirectLimiter::new(Policy::per(10, Duration::from_secs(3600)).capacity(10).build()?)?;
    let allowed: usize = thread::scope(|scope| {
        let count = || (0..5).filter(|_| limiter.take(1).is_allowed()).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
    });
    println!("{allowed} of 20 decisions allowed");

    // Workers that wait for their turn. `wait` blocks the thread, where `.await` would not.
    let limiter = Limiter::new(Policy::per_second(50).capacity(1).build()?);
    let pacer = Pacer::new(limiter.engine());
    thread::scope(|scope| {
        let work = || {
            let acquire = pacer.acquire([limiter.charge("upload", 1)]);
            acquire.max_wait(Duration::from_secs(30)).wait().map(|permit| permit.waited())
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

    // A wait that would be too long fails at once.
    let limiter =
        limiter.engine().limiter("report", Policy::per(1, Duration::from_secs(60)).build()?)?;
    let acquire = || pacer.acquire([limiter.charge("daily", 1)]).max_wait(Duration::from_secs(1));
    drop(acquire().wait()?);
    match acquire().wait() {
        Ok(_) => println!("the second report may go"),
        Err(error) => println!("the second report may not go: {error}"),
    }
    Ok(())
}
