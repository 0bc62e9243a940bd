//! A guard around a store that hangs, refuses, dies and comes back.

mod batches;
mod bound;
mod breaker;
mod contract;
mod receipts;
mod rules;
mod runtimes;
mod shares;
mod stand_in;
mod timeouts;
