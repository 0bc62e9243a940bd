//! A replay decides as the oracle of the testkit does, which computes in rational numbers.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_core::{Policy, Rate, Time};
use tidegate_replay::{Event, NamedPolicy, Replay, Ruling};
use tidegate_testkit::oracle::Oracle;
use tidegate_testkit::scenario::spec::{LimitSpec, PolicySpec};
use tidegate_testkit::scenario::step::{ChargeSpec, Expected, ORIGIN_NS, Op, Wait};

const HOUR: Duration = Duration::from_secs(3_600);

/// A policy, and requests as steps of time in milliseconds, key and cost.
#[derive(Clone, Debug)]
struct Traffic {
    tokens: u64,
    period_ms: u64,
    capacity: u64,
    requests: Vec<(i64, u32, u64)>,
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let step = prop_oneof![
        6 => 0..50_i64,
        3 => 0..5_000_i64,
        1 => -3_000..0_i64,
        1 => 0..10_000_000_i64,
    ];
    let requests = vec((step, 0..4_u32, 0..6_u64), 1..120);
    (1..50_u64, 1..9_000_u64, 1..12_u64, requests).prop_map(
        |(tokens, period_ms, capacity, requests)| Traffic { tokens, period_ms, capacity, requests },
    )
}

impl Traffic {
    fn policy(&self) -> NamedPolicy {
        let rate = Rate::per(self.tokens, Duration::from_millis(self.period_ms)).unwrap();
        let policy = Policy::rate(rate).capacity(self.capacity).build().unwrap();
        let Policy::Bucket(bucket) = policy else { panic!("{policy:?}") };
        NamedPolicy { name: "test".into(), bucket }
    }

    fn oracle(&self) -> Oracle {
        let period = Duration::from_millis(self.period_ms);
        let policy = PolicySpec::bucket(self.tokens, period, self.capacity);
        Oracle::new(vec![LimitSpec::named("test", policy)])
    }

    /// Nanoseconds since the origin, key and cost of each request.
    fn requests(&self) -> Vec<(u64, u32, u64)> {
        let mut now = 0_i64;
        let at = |&(step, key, cost): &(i64, u32, u64)| {
            now = (now + step).max(0);
            (now.cast_unsigned() * 1_000_000, key, cost)
        };
        self.requests.iter().map(at).collect()
    }
}

fn expected(oracle: &mut Oracle, (at, key, cost): (u64, u32, u64), max_wait: Duration) -> Ruling {
    let charges = vec![ChargeSpec(0, key.to_string(), cost)];
    let horizon_ns = u64::try_from(max_wait.as_nanos()).unwrap();
    match oracle.apply(at, &Op::Reserve { charges, horizon_ns }) {
        Expected::Allowed { wait_ns, .. } => Ruling::Admitted(Duration::from_nanos(wait_ns)),
        Expected::Denied { retry_ns: Wait::Ns(ns), .. } => {
            Ruling::Denied(Some(Duration::from_nanos(ns)))
        }
        Expected::Denied { retry_ns: Wait::Never, .. } => Ruling::Denied(None),
        other => panic!("{other:?}"),
    }
}

fn compare(traffic: &Traffic, max_wait: Duration) {
    let mut oracle = traffic.oracle();
    let mut replay = Replay::new(vec![traffic.policy()], max_wait);
    for (index, request) in traffic.requests().into_iter().enumerate() {
        let (at, key, cost) = request;
        let time = Time::from_nanos(ORIGIN_NS + at);
        let mut found = None;
        replay.decide(Event { key, time, cost }, |_, ruling| found = Some(ruling));
        assert_eq!(found, Some(expected(&mut oracle, request, max_wait)), "request {index}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn callers_that_do_not_wait(traffic in traffic()) {
        compare(&traffic, Duration::ZERO);
    }

    #[test]
    fn callers_that_wait(traffic in traffic(), wait_ms in 1..20_000_u64) {
        compare(&traffic, Duration::from_millis(wait_ms).min(HOUR));
    }
}
