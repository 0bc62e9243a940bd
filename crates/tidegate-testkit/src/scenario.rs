//! Operations on a store and the expected answers, as plain numbers.
//!
//! - [`spec`], [`step`]: limits, operations and answers.
//! - [`compose`], [`random`]: generate scenarios.
//! - [`replay`]: runs a scenario on a store.
//! - [`vectors`]: scenarios with the oracle's answers, committed as JSON.

pub mod compose;
pub mod random;
pub mod replay;
pub mod spec;
pub mod step;
pub mod vectors;
