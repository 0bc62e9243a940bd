//! Every broken store fails the rule that it breaks, and a good one fails none.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate_core::TakeOnly;
use tidegate_testkit::conformance::{self, CASES};
use tidegate_testkit::subject::{Contract, Subject};
use tidegate_testkit::{concurrency, property, real_clock};

use super::buckets::{Buckets, Defect};
use super::whole::{Broken, WholeStore};
use super::{good, subject};
use crate::plain_store::PlainStore;

/// The rule that each defect breaks.
const BROKEN: [(Defect, &str); 9] = [
    (Defect::ReadThenWrite, "whole_store::ten_tokens_admit_ten_of_fifteen_concurrent_takes"),
    (Defect::FloatTokens, "basics::tenths_of_a_second_add_up"),
    (Defect::FloorRefill, "basics::no_fraction_is_lost_by_polling"),
    (Defect::FloorRefillOfWholeTokens, "basics::no_fraction_is_lost_by_polling"),
    (Defect::SpendsOnDenial, "basics::a_denial_spends_nothing"),
    (Defect::CallersClock, "basics::the_clock_of_the_store_decides"),
    (Defect::EvictsKeys, "basics::many_keys_are_remembered"),
    (Defect::ExpiresEarly, "basics::a_key_is_remembered_until_it_is_full"),
    (Defect::IgnoresCase, "isolation::keys_are_compared_byte_by_byte"),
];

fn fails(check: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(check)).is_err()
}

fn fails_case<S: Subject>(case: &str, factory: impl Fn() -> S) -> bool {
    fails(|| conformance::check(case, || async { factory() }))
}

/// The names of the cases of the small contract that a store fails.
fn failed_cases(defect: Defect) -> Vec<&'static str> {
    let cases = CASES.iter().filter(|case| case.contract == Contract::TakeStore);
    cases.map(|case| case.name).filter(|case| fails_case(case, || subject(defect))).collect()
}

#[test]
fn each_defect_fails_its_rule_in_both_contracts() {
    for (defect, rule) in BROKEN {
        assert!(fails_case(rule, || subject(defect)), "{defect:?} as a TakeStore");
        let whole = |defect| WholeStore::new(Broken::Buckets(defect));
        assert!(fails_case(rule, || whole(defect)), "{defect:?} as a Store");
        assert!(!fails_case(rule, good), "a good TakeStore fails {rule}");
        assert!(!fails_case(rule, || whole(Defect::None)), "a good Store fails {rule}");
    }
}

#[test]
fn a_list_that_is_not_atomic_fails_its_rule() {
    let rule = "lists::a_list_is_all_or_nothing";
    assert!(fails_case(rule, || WholeStore::new(Broken::Lists)));
    assert!(!fails_case(rule, PlainStore::new));
}

/// A report with the wrong rule sends its reader in the wrong direction.
#[test]
fn a_defect_that_breaks_one_rule_fails_no_other() {
    let races = [
        "whole_store::ten_tokens_admit_ten_of_fifteen_concurrent_takes",
        "whole_store::one_of_two_concurrent_takes_gets_the_last_token",
    ];
    assert_eq!(failed_cases(Defect::ReadThenWrite), races);
    assert_eq!(failed_cases(Defect::EvictsKeys), ["basics::many_keys_are_remembered"]);
    assert_eq!(failed_cases(Defect::IgnoresCase), ["isolation::keys_are_compared_byte_by_byte"]);
}

#[test]
fn random_takes_find_wrong_arithmetic() {
    let effort = property::Effort { cases: 50, ..Default::default() };
    for defect in [Defect::FloatTokens, Defect::FloorRefill, Defect::SpendsOnDenial] {
        let check = || {
            property::check_against_oracle(|| subject(defect), effort);
        };
        assert!(fails(check), "{defect:?}");
    }
}

#[test]
fn threads_find_denials_that_spend() {
    let load = concurrency::Load { threads: 2, rounds: 20 };
    let check = || concurrency::check_all(|| subject(Defect::SpendsOnDenial), load);
    assert!(fails(check));
}

/// A store that never lets another task run passes every case of the suite: those poll their calls
/// on one thread.
#[test]
fn threads_find_a_race_that_tasks_do_not() {
    assert_eq!(failed_cases(Defect::ReadThenLock), [""; 0]);
    let load = concurrency::Load { threads: 4, rounds: 2_000 };
    assert!(fails(|| concurrency::saturated(&subject(Defect::ReadThenLock), load)));
    assert!(!fails(|| concurrency::saturated(&good(), load)));
}

#[test]
fn a_real_clock_shows_defects_of_a_token_or_more() {
    for defect in
        [Defect::ReadThenWrite, Defect::FloorRefill, Defect::SpendsOnDenial, Defect::CallersClock]
    {
        let store = TakeOnly(Buckets::on_real_clock(defect));
        assert!(fails(|| real_clock::check_all(&store, 0)), "{defect:?}");
    }
}
