//! A keyed limiter: each client has its own bucket.
//!
//! `cargo run -p tidegate-examples --bin keyed`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use anyhow::Result;
use tidegate::{Limiter, Policy, Retry};

fn main() -> Result<()> {
    // Thirty requests per minute, with a burst of three.
    let limiter = Limiter::new(Policy::per_minute(30).burst(3).build()?);

    for client in ["alice", "alice", "alice", "alice", "bob"] {
        let decision = limiter.take(client).now()?;
        match decision.retry() {
            None => println!("{client}: allowed, {} left", decision.remaining()),
            Some(Retry::After(wait)) => println!("{client}: denied, again in {wait:.0?}"),
            Some(other) => println!("{client}: denied, {other:?}"),
        }
    }

    // A request that costs several tokens, and one that never fits.
    let decision = limiter.take("carol").cost(2).now()?;
    println!("carol: a cost of 2, {} left", decision.remaining());
    let decision = limiter.take("carol").cost(4).now()?;
    println!("carol: a cost of 4 is denied: {:?}", decision.retry());

    // Refund what the client did not use, with the receipt of the decision.
    if let Some(grant) = limiter.take("dave").cost(3).now()?.granted() {
        let settled = limiter.settle("dave", -2, Some(&grant.receipt)).now()?;
        println!("dave: 2 of 3 given back, {} left", settled.outcomes[0].remaining);
    }
    Ok(())
}
