//! The conformance suite, the vectors, random scenarios and threads, on both servers.

use tidegate_testkit::concurrency::{self, Load};
use tidegate_testkit::launch::Flavor;
use tidegate_testkit::property::{Effort, check_against_oracle};
use tidegate_testkit::subject::block_on;

use crate::fixture::TimedStores;

mod redis {
    use super::*;
    tidegate_testkit::conformance_tests!(|| TimedStores::new(Flavor::Redis));
}

mod valkey {
    use super::*;
    tidegate_testkit::conformance_tests!(|| TimedStores::new(Flavor::Valkey));
}

/// The script and the oracle agree on random scenarios. Each step is a round trip, so there are
/// fewer cases than for the in-process store.
#[test]
fn random_scenarios() {
    let effort = Effort::default();
    let steps = check_against_oracle(
        || block_on(TimedStores::new(Flavor::Redis)),
        Effort { cases: effort.cases / 12, ..effort },
    );
    assert!(steps > 8_000, "{steps} steps");
}

/// Two nodes used in turn behave as one store.
#[test]
fn random_scenarios_on_two_nodes() {
    let effort = Effort::default();
    let steps = check_against_oracle(
        || block_on(TimedStores::with_nodes(Flavor::Redis, 2)),
        Effort { cases: effort.cases / 35, ..effort },
    );
    assert!(steps > 3_000, "{steps} steps");
}

#[test]
fn threads() {
    concurrency::check_all(
        || block_on(TimedStores::new(Flavor::Redis)),
        Load { threads: 4, rounds: 20 },
    );
}
