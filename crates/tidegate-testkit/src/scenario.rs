//! What is asked of a store, and what it must answer, in plain numbers.
//!
//! - [`spec`], [`step`]: limits, operations and answers.
//! - [`compose`], [`random`]: where scenarios come from.
//! - [`replay`]: runs a scenario on a store.
//! - [`vectors`]: scenarios with the oracle's answers, committed as JSON.

pub mod compose;
pub mod random;
pub mod replay;
pub mod spec;
pub mod step;
pub mod vectors;
