//! The store on a real workerd that runs the bundled Worker.
#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod batches;
mod failures;
mod fixture;
mod persistence;

mod one_shard {
    use crate::fixture::OnWorkerd;

    tidegate_testkit::conformance_tests!(|| async { OnWorkerd::start(1) });
}

mod many_shards {
    use crate::fixture::OnWorkerd;

    tidegate_testkit::conformance_tests!(|| async { OnWorkerd::start(128) });
}
