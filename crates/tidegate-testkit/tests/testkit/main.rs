//! Tests of the testkit: the oracle against simpler references, the core against the oracle, the
//! suite on a minimal store, and the launchers.

mod classic;
mod conformance;
mod faulty_store;
#[cfg(feature = "launch")]
mod launch;
mod plain_store;
mod suite;
mod take_store;
