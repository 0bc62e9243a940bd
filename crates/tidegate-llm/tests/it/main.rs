//! The outbound stack, against the simulator of providers and against scripts.

mod adapter;
mod failures;
mod handler;
mod planning;
mod trying;
