//! The conformance suite: what every implementation of `Store` or `TakeStore` must do.
//!
//! Each case is a function over a [`Subject`] that fails by panicking with what was wrong.
//! [`conformance_tests!`](crate::conformance_tests) makes one test of each for a `Store`, and
//! [`take_tests!`](crate::take_tests) one of each that applies to a `TakeStore`; [`CASES`] lists
//! them for other harnesses. Every case needs a store in which nothing has been spent. Times are
//! whole milliseconds, so that every clock can show them. Nothing here sleeps or reads a clock.
//!
//! A failed case reports its last operations and the answers of the store, one per line.
//!
//! ```text
//! mod conformance {
//!     tidegate_testkit::conformance_tests!(|| async { MySubject::new() });
//! }
//! ```

pub mod basics;
pub mod changes;
pub mod counters;
pub mod holds;
pub mod isolation;
pub mod lists;
pub mod receipts;
pub mod reservations;
pub mod settlement;
pub mod slots;
mod test_store;
mod transcript;
pub mod whole_store;

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::subject::{BoxFuture, Contract, Subject, block_on};

/// One case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// Group and name, such as `basics::an_unknown_key_is_full`.
    pub name: &'static str,
    /// The smallest contract that it belongs to.
    pub contract: Contract,
    /// Runs the case; panics if the store fails it.
    pub run: for<'s> fn(&'s dyn Subject) -> BoxFuture<'s, ()>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Runs every case of the contract that the subjects implement, each on a new subject. Returns the
/// number of cases.
///
/// # Panics
/// If the store fails a case.
pub fn check_all<S, F>(factory: impl Fn() -> F) -> usize
where
    S: Subject,
    F: Future<Output = S>,
{
    let contract = block_on(factory()).contract();
    let cases = CASES.iter().filter(|case| case.contract <= contract);
    cases.inspect(|case| check(case.name, &factory)).count()
}

/// Runs one case on a new subject.
///
/// # Panics
/// If there is no such case, or the store fails it.
pub fn check<S, F>(name: &str, factory: impl FnOnce() -> F)
where
    S: Subject,
    F: Future<Output = S>,
{
    let case = CASES.iter().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("unknown conformance case {name}"));
    transcript::begin();
    let run = AssertUnwindSafe(|| {
        block_on(async {
            let subject = factory().await;
            (case.run)(&subject).await;
        });
    });
    if let Err(panic) = catch_unwind(run) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked");
        let report = transcript::report(case.name, text);
        #[expect(clippy::print_stderr, reason = "the report of a failed test")]
        {
            eprintln!("{report}");
        }
        // The hook has shown the first panic already.
        resume_unwind(Box::new(report));
    }
}

/// Lists the cases once, for [`CASES`] and for the macros. In each group, the cases before the
/// semicolon belong to the contract of `TakeStore`. The first token is a dollar sign, because a
/// macro that defines a macro cannot write one itself.
macro_rules! suite {
    ($d:tt $($group:ident { $($take:ident)*; $($case:ident)* })*) => {
        /// Every case, in the order of the suite.
        pub const CASES: &[Case] = &[$(
            $(Case {
                name: concat!(stringify!($group), "::", stringify!($take)),
                contract: Contract::TakeStore,
                run: |subject| Box::pin($group::$take(subject)),
            },)*
            $(Case {
                name: concat!(stringify!($group), "::", stringify!($case)),
                contract: Contract::Store,
                run: |subject| Box::pin($group::$case(subject)),
            },)*
        )*];

        /// Generates one test per case of the contract of `Store`, in one module per group.
        ///
        /// The argument is an async function without arguments that returns a new
        /// [`Subject`](crate::subject::Subject). The README has an example.
        #[macro_export]
        macro_rules! conformance_tests {
            ($d factory:expr) => {
                $($crate::conformance_group!($group, $d factory, $($take)* $($case)*);)*
            };
        }

        /// Generates one test per case of the contract of `TakeStore`, in one module per group.
        ///
        /// The argument is an async function without arguments that returns a new
        /// [`Subject`](crate::subject::Subject), such as
        /// [`Clocked::take_only`](crate::subject::Clocked::take_only). The README has an example.
        #[macro_export]
        macro_rules! take_tests {
            ($d factory:expr) => {
                $($crate::conformance_group!($group, $d factory, $($take)*);)*
            };
        }
    };
}

/// Generates a module with one test per case; for the macros of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_group {
    ($group:ident, $factory:expr,) => {};
    ($group:ident, $factory:expr, $($case:ident)+) => {
        mod $group {
            #[allow(unused_imports)]
            use super::*;
            $(#[test]
            fn $case() {
                $crate::conformance::check(
                    concat!(stringify!($group), "::", stringify!($case)),
                    $factory,
                );
            })+
        }
    };
}

suite! { $
    basics {
        an_unknown_key_is_full
        the_eleventh_of_ten_is_denied
        a_charge_may_cost_several
        a_clock_that_steps_back_grants_nothing
        the_wait_after_a_large_step_back_is_bounded
        the_clock_of_the_store_decides
        refill_is_time_by_rate
        a_denial_spends_nothing
        the_hint_is_exact
        remaining_is_whole
        a_cost_above_capacity_never_fits
        a_cost_of_zero_reports
        a_peek_spends_nothing
        a_day_brings_no_drift
        no_fraction_is_lost_by_polling
        tenths_of_a_second_add_up
        a_key_is_remembered_until_it_is_full
        many_keys_are_remembered;
    }
    isolation {
        keys_are_independent
        limits_are_independent
        limit_names_and_keys_do_not_collide
        groups_are_part_of_the_identity
        keys_are_compared_byte_by_byte
        inline_limits_are_their_parameters;
        a_reset_forgets_one_key
    }
    lists {
        equal_buckets_are_merged
        keys_are_bounded
        a_batch_is_answered_in_order;
        a_list_is_all_or_nothing
        the_longest_wait_binds
        a_zero_cost_in_a_list_only_reports
        lists_are_bounded
    }
    reservations {
        ;
        reservations_queue
        what_fits_now_starts_now
        the_shorter_horizon_applies
        a_list_starts_together
        a_cancelled_reservation_is_given_back
        a_refund_spares_later_reservations
        a_started_reservation_is_refunded_like_a_spend
    }
    settlement {
        ;
        a_refund_stops_at_full
        a_settlement_may_go_into_debt
        debt_has_a_bound
        a_list_is_settled_together
    }
    holds {
        ;
        a_held_key_reopens_empty_and_paced
        the_longer_hold_applies
        settlement_does_not_touch_a_hold
        a_reservation_waits_for_the_end_of_a_hold
        a_held_key_denies_its_list
    }
    changes {
        ;
        tokens_stay
        the_filled_share_stays
        every_bucket_starts_full
        debt_stays
        a_hold_survives_a_change
        a_hold_that_has_passed_does_not_close_the_key_again
        a_retry_hint_holds_after_a_change
        a_stale_caller_adopts_the_newer_revision
        counters_keep_what_was_used
        a_reservation_of_another_revision_is_dropped
    }
    receipts {
        ;
        a_foreign_receipt_is_refused
        a_receipt_names_its_buckets
        a_receipt_survives_serialization
        a_receipt_has_a_stamp_per_charge
    }
    counters {
        ;
        a_quota_counts_by_window
        the_store_picks_the_window
        windows_are_checked
        a_refund_for_an_earlier_window_is_dropped
        a_reservation_stays_in_its_window
        an_allowance_does_not_refill
    }
    slots {
        ;
        a_slot_is_released_once
        several_slots_are_released_together
        settlement_charges_no_slots
        a_lease_runs_out
        a_lease_is_renewed
        rate_and_slots_are_one_list
        a_release_checks_its_receipt
        a_reset_frees_the_slots
    }
    whole_store {
        the_vectors_pass
        ten_tokens_admit_ten_of_fifteen_concurrent_takes
        one_of_two_concurrent_takes_gets_the_last_token;
    }
}
