//! The testkit tested: the oracle against simpler references, the core against the oracle, and
//! the suite against a store that is too simple to be wrong.

mod classic;
mod conformance;
mod plain_store;
mod suite;
