//! The testkit tested: the oracle against simpler references, the core against the oracle, the
//! suite against a store that is too simple to be wrong, and the launchers against the system.

mod classic;
mod conformance;
mod faulty_store;
#[cfg(feature = "launch")]
mod launch;
mod plain_store;
mod suite;
