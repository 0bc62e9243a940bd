//! Checks of stores against exact arithmetic.
//!
#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! - [`oracle`]: the full semantics of the `Store` contract over rational numbers.
//! - [`subject`]: a store under test, its contract and its clock.
//! - [`scenario`]: limits, operations and expected answers as plain numbers; how they are
//!   generated, replayed on a store, and committed as vectors.
//! - [`property`]: random scenarios, shrunk to a readable one on failure.
//! - [`conformance`]: the suite that defines the contracts.
//! - [`concurrency`]: many threads on one store.
//! - [`real_clock`]: checks on a clock that the test cannot set.
//! - [`faulty_store`]: a store that delays, fails or hangs as the test requires.
#![cfg_attr(feature = "launch", doc = "- [`launch`]: real servers, a slow network, processes.")]
//!
//! For tests only. Nothing here sleeps. Only [`real_clock`], and the feature `launch`, which waits
//! for other processes, read a clock.

pub mod concurrency;
pub mod conformance;
pub mod faulty_store;
#[cfg(feature = "launch")]
pub mod launch;
pub mod oracle;
pub mod property;
pub mod real_clock;
pub mod scenario;
pub mod subject;
