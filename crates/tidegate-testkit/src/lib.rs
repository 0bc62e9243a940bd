//! What tests of Tidegate stand on: a reference to compare with, and one suite for every store.
//!
//! - [`oracle`]: the whole semantics of the Store contract over rational numbers.
//! - [`subject`]: a store under test and its clock.
//! - [`scenario`]: limits, operations and answers in plain numbers; how they are made up, run on a
//!   store, and committed as vectors.
//! - [`property`]: random scenarios, shrunk to a readable one on failure.
//! - [`conformance`]: the suite that is the contract.
//! - [`concurrency`]: many threads on one store.
//! - [`faulty_store`]: a store that is slow, broken or both, as a test says.
#![cfg_attr(feature = "launch", doc = "- [`launch`]: real servers, a slow network, processes.")]
//!
//! A store runs all of it like this:
//!
//! ```text
//! mod conformance {
//!     tidegate_testkit::conformance_tests!(|| async { MySubject::new() });
//! }
//!
//! #[test]
//! fn decides_as_the_oracle_does() {
//!     tidegate_testkit::property::property(MySubject::new, Default::default());
//! }
//!
//! #[test]
//! fn holds_its_bounds_under_threads() {
//!     tidegate_testkit::concurrency::check_all(MySubject::new, Default::default());
//! }
//! ```
//!
//! Nothing here sleeps or belongs into a program, and nothing but the feature `launch`, which
//! waits for other processes, reads a clock.

pub mod concurrency;
pub mod conformance;
pub mod faulty_store;
#[cfg(feature = "launch")]
pub mod launch;
pub mod oracle;
pub mod property;
pub mod scenario;
pub mod subject;
