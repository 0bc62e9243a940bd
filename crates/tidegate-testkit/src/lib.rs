//! Test support for Tidegate: a reference implementation, and one conformance suite for all stores.
//!
//! - [`oracle`]: the full semantics of the `Store` contract over rational numbers.
//! - [`subject`]: a store under test and its clock.
//! - [`scenario`]: limits, operations and expected answers as plain numbers; how they are
//!   generated, replayed on a store, and committed as vectors.
//! - [`property`]: random scenarios, shrunk to a readable one on failure.
//! - [`conformance`]: the suite that defines the contract.
//! - [`concurrency`]: many threads on one store.
//! - [`faulty_store`]: a store that delays, fails or hangs as the test requires.
#![cfg_attr(feature = "launch", doc = "- [`launch`]: real servers, a slow network, processes.")]
//!
//! To test a store:
//!
//! ```text
//! mod conformance {
//!     tidegate_testkit::conformance_tests!(|| async { MySubject::new() });
//! }
//!
//! #[test]
//! fn decides_as_the_oracle_does() {
//!     tidegate_testkit::property::check_against_oracle(MySubject::new, Default::default());
//! }
//!
//! #[test]
//! fn holds_its_bounds_under_threads() {
//!     tidegate_testkit::concurrency::check_all(MySubject::new, Default::default());
//! }
//! ```
//!
//! For tests only. Nothing here sleeps, and only the feature `launch`, which waits for other
//! processes, reads a clock.

pub mod concurrency;
pub mod conformance;
pub mod faulty_store;
#[cfg(feature = "launch")]
pub mod launch;
pub mod oracle;
pub mod property;
pub mod scenario;
pub mod subject;
