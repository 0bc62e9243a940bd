//! The suite on the small contract: a good store passes all of it, and every broken one fails the
//! rule that it breaks, as a `TakeStore` and as a whole `Store`.

mod broken;
mod buckets;
mod whole;

use tidegate_core::TakeOnly;
use tidegate_testkit::subject::{Clocked, block_on};
use tidegate_testkit::{concurrency, conformance, property, real_clock, scenario::vectors};

use self::buckets::{Buckets, Defect};

fn subject(defect: Defect) -> Clocked<TakeOnly<Buckets>> {
    let (buckets, clock) = Buckets::on_manual_clock(defect);
    Clocked::take_only(buckets, move |nanos| clock.set(nanos))
}

fn good() -> Clocked<TakeOnly<Buckets>> {
    subject(Defect::None)
}

mod rules {
    use super::good;

    tidegate_testkit::take_tests!(|| async { good() });
}

#[test]
fn random_takes_agree_with_the_oracle() {
    let effort = property::Effort { cases: 700, ..Default::default() };
    let steps = property::check_against_oracle(good, effort);
    assert!(steps > 20_000, "only {steps} steps were compared");
}

#[test]
fn bounds_hold_under_threads() {
    concurrency::check_all(good, concurrency::Load { threads: 4, rounds: 50 });
}

#[test]
fn a_real_clock_passes() {
    real_clock::check_all(&TakeOnly(Buckets::on_real_clock(Defect::None)), 7);
}

/// A suite from which cases are missing would pass everything.
#[test]
fn the_small_contract_has_its_share_of_cases_and_vectors() {
    let cases = conformance::check_all(|| async { good() });
    assert!(cases >= 25 && cases < conformance::CASES.len() / 2, "{cases}");
    let count = block_on(vectors::run_all(&good())).unwrap();
    assert!(count >= 10, "{count} vectors");
}
