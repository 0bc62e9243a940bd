//! Waiting: order, fairness, deadlines, cancellation and concurrency; under virtual time wherever
//! time matters.

mod attribution;
mod callers;
mod cancel;
mod clocks;
mod concurrency;
mod deadline;
mod fairness;
mod fuzz;
mod leases;
mod manual;
mod one_limit;
mod order;
mod overhead;
mod policy_changes;
mod pool;
mod remote_store;
mod runtimes;
mod shared;
mod wakers;
mod windows;
