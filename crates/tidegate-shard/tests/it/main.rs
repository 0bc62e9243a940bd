//! The shard as a store in this process: the conformance suite, without a Worker around it.
#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod api;
mod fixture;

mod one_shard {
    use crate::fixture::InProcess;

    tidegate_testkit::conformance_tests!(|| async { InProcess::new(1) });
}

mod many_shards {
    use crate::fixture::InProcess;

    tidegate_testkit::conformance_tests!(|| async { InProcess::new(128) });
}
