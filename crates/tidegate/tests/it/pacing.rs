//! Waiting: order, fairness, deadlines, cancellation, concurrency; under virtual time wherever
//! time matters.

mod cancel;
mod concurrency;
mod deadline;
mod fairness;
mod fuzz;
mod hand;
mod order;
mod runtimes;
mod shared;
mod terms;
mod wakers;
