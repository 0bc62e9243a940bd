//! A guard around a store that hangs, refuses, dies and comes back.

mod batches;
mod bound;
mod breaker;
mod contract;
mod faulty;
mod receipts;
mod rules;
mod runtimes;
mod shares;
mod timeouts;
