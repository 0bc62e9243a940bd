//! Waiting: order, fairness, deadlines, cancellation, concurrency; under virtual time wherever
//! time matters.

mod callers;
mod cancel;
mod concurrency;
mod deadline;
mod distant;
mod fairness;
mod fuzz;
mod hand;
mod leases;
mod one_limit;
mod order;
mod pool;
mod runtimes;
mod shared;
mod terms;
mod wakers;
