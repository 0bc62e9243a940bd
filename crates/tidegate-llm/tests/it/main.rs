//! The outbound stack, against the simulator of providers and against scripts.

mod adapter;
mod failures;
mod planning;
mod trying;
mod wire;
