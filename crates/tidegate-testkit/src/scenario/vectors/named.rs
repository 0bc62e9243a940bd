//! Hand-written scenarios, which precede the random ones.

use std::time::Duration;

use super::builder::ScenarioBuilder;
use crate::scenario::replay::Scenario;
use crate::scenario::spec::{ChangeSpec, LimitSpec, PolicySpec};
use crate::scenario::step::Op;

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLI;
const DAY: u64 = 86_400 * SECOND;

/// Returns all hand-written scenarios.
pub(super) fn all() -> Vec<Scenario> {
    let mut all = vec![
        fifteen_calls(),
        list_of_three(),
        twins_in_a_list(),
        reserve_and_cancel(),
        debt_and_saturation(),
        hold_and_reopen(),
        clock_steps_back(),
        calendar_day(),
        allowance_until_reset(),
        strict_window(),
        slots(),
        reservations_at_the_edge(),
        reservation_across_a_change(),
    ];
    all.extend(polling_at_every_rate());
    let modes = [ChangeSpec::KeepTokens, ChangeSpec::Proportional, ChangeSpec::Reset];
    all.extend(modes.map(policy_change));
    all
}

fn ten_at_one_a_second() -> PolicySpec {
    PolicySpec::bucket(1, Duration::from_secs(1), 10)
}

/// Requirement R295: floating point denies call 10 and admits call 11.
fn fifteen_calls() -> Scenario {
    let mut scenario = ScenarioBuilder::new(
        "fifteen-calls",
        vec![LimitSpec::named("client", ten_at_one_a_second())],
    );
    for call in 1..=15 {
        scenario.take(call * 100 * MILLI, &[(0, "a", 1)]);
    }
    scenario.build()
}

/// Rates prone to rounding errors, polled faster than they refill and then slower.
fn polling_at_every_rate() -> Vec<Scenario> {
    let rates = [
        ("1-per-10-days", 1, 10 * DAY, 2, DAY),
        ("1-per-10-s", 1, 10 * SECOND, 3, SECOND),
        ("7-per-min", 7, 60 * SECOND, 7, SECOND),
        ("3-per-2-s", 3, 2 * SECOND, 5, 100 * MILLI),
        ("3-per-s", 3, SECOND, 3, 50 * MILLI),
        ("50-per-s", 50, SECOND, 10, 3 * MILLI),
        ("999983-per-min", 999_983, 60 * SECOND, 16, MILLI),
        ("600-million-per-s", 600_000_000, SECOND, 600_000_000, MILLI),
    ];
    let scenario = |(name, tokens, period_ns, capacity, step): (&str, u64, u64, u64, u64)| {
        let policy = PolicySpec::bucket(tokens, Duration::from_nanos(period_ns), capacity);
        let mut scenario = ScenarioBuilder::new(
            &format!("polling-{name}"),
            vec![LimitSpec::named("client", policy)],
        );
        let some = (capacity / 5).max(1);
        let mut now = 0;
        for call in 0..24_usize {
            let cost = [some, capacity, 0, some, some + 1, capacity + 1][call % 6];
            scenario.take(now, &[(0, "a", cost)]);
            now += step * [1, 0, 3, 1, 7, 2][call / 4];
        }
        scenario.build()
    };
    rates.into_iter().map(scenario).collect()
}

/// The second and third charge are denied; the first is not spent.
fn list_of_three() -> Scenario {
    let organization = PolicySpec::bucket(7, Duration::from_secs(60), 5);
    let total = PolicySpec::Allowance { amount: 8 };
    let mut scenario = ScenarioBuilder::new(
        "list-of-three",
        vec![
            LimitSpec::named("client", ten_at_one_a_second()),
            LimitSpec::named("organization", organization),
            LimitSpec::named("total", total),
        ],
    );
    let list = [(0, "a", 2), (1, "acme", 2), (2, "a", 3)];
    for call in 0..5 {
        scenario.take(call * 300 * MILLI, &list);
        scenario.peek(call * 300 * MILLI, &[(0, "a", 1), (1, "acme", 1), (2, "a", 0)]);
    }
    scenario.build()
}

/// Equal buckets in a list are one charge of the sum.
fn twins_in_a_list() -> Scenario {
    let mut scenario =
        ScenarioBuilder::new("twins", vec![LimitSpec::named("client", ten_at_one_a_second())]);
    scenario.take(0, &[(0, "a", 4), (0, "b", 1), (0, "a", 3)]);
    scenario.take(0, &[(0, "a", 2), (0, "a", 2)]);
    scenario.take(0, &[(0, "a", 2), (0, "a", 1)]);
    scenario.take(SECOND, &[(0, "b", 6), (0, "b", 6)]);
    scenario.take(SECOND, &[(0, "c", u64::MAX), (0, "c", u64::MAX)]);
    scenario.build()
}

/// Tokens that a later reservation depends on are not refunded.
fn reserve_and_cancel() -> Scenario {
    let mut scenario =
        ScenarioBuilder::new("cancel", vec![LimitSpec::named("client", ten_at_one_a_second())]);
    scenario.take(0, &[(0, "a", 10)]);
    scenario.reserve(0, &[(0, "a", 5)], 3 * SECOND);
    scenario.reserve(0, &[(0, "a", 5)], 5 * SECOND);
    scenario.reserve(0, &[(0, "a", 2)], 10 * SECOND);
    scenario.settle(SECOND, "a", -5, Some(2));
    scenario.settle(SECOND, "a", -2, Some(3));
    scenario.peek(SECOND, &[(0, "a", 1)]);
    scenario.settle(9 * SECOND, "a", -5, Some(2));
    scenario.build()
}

/// A settlement creates debt, up to its bound.
fn debt_and_saturation() -> Scenario {
    let mut scenario =
        ScenarioBuilder::new("debt", vec![LimitSpec::named("client", ten_at_one_a_second())]);
    scenario.take(0, &[(0, "a", 4)]);
    scenario.settle(0, "a", 9, Some(0));
    scenario.take(SECOND, &[(0, "a", 1)]);
    scenario.settle(SECOND, "a", 100, None);
    scenario.settle(SECOND, "a", 1, None);
    scenario.settle(SECOND, "a", -15, None);
    scenario.settle(2 * SECOND, "a", -100, None);
    scenario.settle(2 * SECOND, "fresh", -3, None);
    scenario.peek(2 * SECOND, &[(0, "a", 10)]);
    scenario.build()
}

/// A held key reopens empty and refills; a shorter hold does not shorten a longer one.
fn hold_and_reopen() -> Scenario {
    let mut scenario =
        ScenarioBuilder::new("hold", vec![LimitSpec::named("client", ten_at_one_a_second())]);
    scenario.take(0, &[(0, "a", 3)]);
    scenario.hold(0, "a", 5 * SECOND);
    scenario.hold(SECOND, "a", 2 * SECOND);
    scenario.take(SECOND, &[(0, "a", 1)]);
    scenario.settle(2 * SECOND, "a", -3, Some(0));
    for second in 5..9 {
        scenario.take(second * SECOND, &[(0, "a", 2)]);
    }
    scenario.hold(9 * SECOND, "a", SECOND);
    scenario.reset(9 * SECOND, "a");
    scenario.take(9 * SECOND, &[(0, "a", 10)]);
    scenario.build()
}

/// A clock step back grants nothing, and the wait after it is bounded by debt and horizon.
fn clock_steps_back() -> Scenario {
    let mut scenario =
        ScenarioBuilder::new("step-back", vec![LimitSpec::named("client", ten_at_one_a_second())]);
    scenario.take(10 * SECOND, &[(0, "a", 5)]);
    scenario.take(9 * SECOND, &[(0, "a", 1)]);
    scenario.take(12 * SECOND, &[(0, "a", 5)]);
    scenario.take(40 * DAY, &[(0, "b", 10)]);
    scenario.peek(30 * DAY, &[(0, "b", 1)]);
    scenario.take(20 * DAY, &[(0, "b", 1)]);
    scenario.build()
}

/// A quota counts by day; a refund for the previous day is dropped.
fn calendar_day() -> Scenario {
    let policy = PolicySpec::Quota { amount: 5 };
    let mut scenario = ScenarioBuilder::new(
        "calendar",
        vec![LimitSpec::named("daily", policy).windows_of(86_400)],
    );
    scenario.take(0, &[(0, "a", 3)]);
    scenario.take(3_600 * SECOND, &[(0, "a", 3)]);
    scenario.take(3_600 * SECOND, &[(0, "a", 6)]);
    scenario.settle(4_000 * SECOND, "a", 1, Some(0));
    scenario.take(DAY - MILLI, &[(0, "a", 1)]);
    scenario.take(DAY, &[(0, "a", 4)]);
    scenario.settle(DAY, "a", -3, Some(0));
    scenario.settle(DAY, "a", 20, None);
    scenario.peek(DAY - MILLI, &[(0, "a", 1)]);
    scenario.hold(DAY + SECOND, "b", 10 * SECOND);
    scenario.take(DAY + 2 * SECOND, &[(0, "b", 1)]);
    scenario.build()
}

/// No refill; only a reset or a refund opens it again.
fn allowance_until_reset() -> Scenario {
    let policy = PolicySpec::Allowance { amount: 4 };
    let mut scenario =
        ScenarioBuilder::new("allowance", vec![LimitSpec::named("messages", policy)]);
    scenario.take(0, &[(0, "a", 3)]);
    scenario.take(DAY, &[(0, "a", 2)]);
    scenario.settle(DAY, "a", -1, Some(0));
    scenario.take(DAY, &[(0, "a", 2)]);
    scenario.reset(2 * DAY, "a");
    scenario.take(2 * DAY, &[(0, "a", 4)]);
    scenario.settle(2 * DAY, "a", 9, None);
    scenario.take(2 * DAY, &[(0, "b", 5)]);
    scenario.build()
}

/// Never more than ten in any closed minute.
fn strict_window() -> Scenario {
    let window_ns = 60 * SECOND;
    let mut scenario = ScenarioBuilder::new(
        "strict-window",
        vec![
            LimitSpec::named("some", PolicySpec::StrictWindow { tokens: 10, window_ns, burst: 4 }),
            LimitSpec::named("all", PolicySpec::StrictWindow { tokens: 10, window_ns, burst: 10 }),
        ],
    );
    for call in 0..12 {
        scenario.take(call * 6 * SECOND, &[(0, "a", 1)]);
        scenario.take(call * 6 * SECOND, &[(1, "a", 1)]);
    }
    scenario.take(90 * SECOND, &[(0, "a", 4), (1, "a", 1)]);
    scenario.take(120 * SECOND + MILLI, &[(0, "a", 4), (1, "a", 1)]);
    scenario.build()
}

/// Slots come back by release, once; tokens of the same list stay spent.
fn slots() -> Scenario {
    let mut scenario = ScenarioBuilder::new(
        "slots",
        vec![
            LimitSpec::named("calls", PolicySpec::Concurrency { slots: 2 }),
            LimitSpec::named("client", ten_at_one_a_second()),
        ],
    );
    let list = [(0, "a", 1), (1, "a", 3)];
    scenario.take(0, &list);
    scenario.take(0, &list);
    scenario.take(0, &list);
    scenario.push(SECOND, Op::Release { receipt: 0 });
    scenario.push(SECOND, Op::Release { receipt: 0 });
    scenario.take(SECOND, &list);
    scenario.take(SECOND, &[(0, "a", 3)]);
    scenario.reset(SECOND, "a");
    scenario.push(SECOND, Op::Release { receipt: 1 });
    scenario.take(SECOND, &[(0, "a", 2)]);
    scenario.build()
}

/// Not into the next calendar window, and not shortened by a charge of zero.
fn reservations_at_the_edge() -> Scenario {
    let near = PolicySpec::Bucket {
        tokens: 1,
        period_ns: SECOND,
        capacity: 10,
        max_debt: 0,
        horizon_ns: 2 * SECOND,
    };
    let mut scenario = ScenarioBuilder::new(
        "reserve-edge",
        vec![
            LimitSpec::named("client", ten_at_one_a_second()),
            LimitSpec::named("daily", PolicySpec::Quota { amount: 5 }).windows_of(86_400),
            LimitSpec::named("near", near),
        ],
    );
    let now = DAY - 5 * SECOND;
    scenario.take(now, &[(0, "a", 10), (2, "a", 10)]);
    scenario.reserve(now, &[(1, "a", 1), (0, "a", 5)], 60 * SECOND);
    scenario.reserve(now, &[(1, "a", 1), (0, "a", 4)], 60 * SECOND);
    scenario.reserve(now, &[(0, "a", 2), (2, "a", 0)], 60 * SECOND);
    scenario.reserve(now, &[(2, "a", 3)], 60 * SECOND);
    scenario.reserve(now, &[(2, "a", 2)], 60 * SECOND);
    scenario.reserve(now, &[(0, "b", 11)], 60 * SECOND);
    scenario.build()
}

/// A receipt of another revision cannot be compared: nothing is given back before its start.
fn reservation_across_a_change() -> Scenario {
    let faster = PolicySpec::bucket(2, Duration::from_secs(1), 10);
    let limit =
        LimitSpec::named("client", ten_at_one_a_second()).revised(ChangeSpec::KeepTokens, faster);
    let mut scenario = ScenarioBuilder::new("reserve-change", vec![limit]);
    scenario.take(0, &[(0, "a", 10)]);
    scenario.reserve(0, &[(0, "a", 4)], 60 * SECOND);
    scenario.push(SECOND, Op::Revise { limit: 0 });
    scenario.settle(SECOND, "a", 1, None);
    scenario.settle(SECOND, "a", -4, Some(1));
    scenario.settle(5 * SECOND, "a", -4, Some(1));
    scenario.build()
}

/// Down, up, and to another rate.
fn policy_change(change: ChangeSpec) -> Scenario {
    let name = match change {
        ChangeSpec::KeepTokens => "change-keep-tokens",
        ChangeSpec::Proportional => "change-proportional",
        ChangeSpec::Reset => "change-reset",
    };
    let second = Duration::from_secs(1);
    let limit = LimitSpec::named("client", ten_at_one_a_second())
        .revised(change, PolicySpec::bucket(2, second, 4))
        .revised(change, PolicySpec::bucket(7, 60 * second, 40))
        .revised(change, PolicySpec::bucket(999_983, 60 * second, 10));
    let mut scenario = ScenarioBuilder::new(name, vec![limit]);
    scenario.take(0, &[(0, "full", 1)]);
    for at in [SECOND, 2_500 * MILLI, 4 * SECOND, 5_001 * MILLI] {
        scenario.take(at, &[(0, "a", 3)]);
        scenario.take(at, &[(0, "b", 4)]);
        scenario.settle(at, "b", 6, None);
        if at < 5 * SECOND {
            scenario.push(at, Op::Revise { limit: 0 });
            scenario.peek(at, &[(0, "a", 1), (0, "b", 1), (0, "full", 1)]);
            scenario.peek(at + 500 * MILLI, &[(0, "a", 1), (0, "b", 1), (0, "full", 1)]);
        }
    }
    scenario.build()
}
