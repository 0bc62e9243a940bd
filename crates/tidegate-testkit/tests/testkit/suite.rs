//! The suite on the plain store, beyond the conformance cases.

use tidegate_testkit::concurrency::{Load, check_all};
use tidegate_testkit::property::{Effort, check_against_oracle};
use tidegate_testkit::scenario::vectors;
use tidegate_testkit::subject::block_on;

use crate::plain_store::PlainStore;

#[test]
fn the_core_decides_as_the_oracle_does() {
    let steps = check_against_oracle(PlainStore::new, Effort::default());
    assert!(steps >= 100_000, "only {steps} steps were compared");
}

#[test]
fn the_committed_vectors_are_what_the_oracle_gives() {
    let committed = include_str!("../../vectors/vectors.json");
    assert!(committed == vectors::generate(), "run `cargo xtask vectors` and look at the diff");
    assert!(committed.len() < 1_500_000);
}

#[test]
fn the_core_passes_the_vectors() {
    let subject = PlainStore::new();
    match block_on(vectors::run_all(&subject)) {
        Ok(count) => assert!(count > 60, "{count}"),
        Err(difference) => panic!("{difference}"),
    }
}

#[test]
fn bounds_hold_under_threads() {
    check_all(PlainStore::new, Load::default());
}
