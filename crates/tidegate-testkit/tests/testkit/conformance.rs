//! Every case of the suite on the plain store, and the report of a failed case.

use std::panic::catch_unwind;

use tidegate_core::Store;
use tidegate_testkit::conformance;
use tidegate_testkit::subject::{BoxFuture, Resolution, Subject};

use crate::plain_store::PlainStore;

tidegate_testkit::conformance_tests!(|| async { PlainStore::new() });

/// A store whose clock stands still, so that nothing is ever refilled.
struct Stopped(PlainStore);

impl Subject for Stopped {
    fn store(&self) -> &dyn Store {
        self.0.store()
    }

    fn resolution(&self) -> Resolution {
        self.0.resolution()
    }

    fn set_time(&self, _: u64) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[test]
fn a_failed_case_reports_operations_answers_and_expectation() {
    let run = || {
        conformance::check("basics::refill_is_time_by_rate", || async {
            Stopped(PlainStore::new())
        });
    };
    let panic = catch_unwind(run).unwrap_err();
    let report = panic.downcast_ref::<String>().unwrap();
    let expected = "conformance case basics::refill_is_time_by_rate failed: \
        assertion `left == right` failed\n  left: 3\n right: 7\n\
        (left: what the store answered; right: what was expected)\n\
        last operations and answers:\n  \
          at 0 ms: take 6 of client[\"a\"] -> allowed; left 4/10\n  \
          at 2000 ms: take 1 of client[\"a\"] -> allowed; left 3/10";
    assert_eq!(report, expected);
}
