//! The oracle against a textbook token bucket, which accumulates tokens. Also the strict window
//! against a plain count of admissions.

use std::time::Duration;

use num_bigint::BigInt;
use num_rational::Ratio;
use num_traits::ToPrimitive as _;
use tidegate_testkit::oracle::Oracle;
use tidegate_testkit::scenario::random::Random;
use tidegate_testkit::scenario::spec::{LimitSpec, PolicySpec};
use tidegate_testkit::scenario::step::{ChargeSpec, Expected, Op, Wait};

type Rational = Ratio<BigInt>;

const SECOND: u64 = 1_000_000_000;

/// A textbook token bucket: tokens, and the time of the last update.
struct Classic {
    tokens: Rational,
    at: u64,
    per_ns: Rational,
    capacity: Rational,
}

impl Classic {
    fn new(tokens: u64, period: u64, capacity: Rational) -> Self {
        let per_ns = Rational::new(tokens.into(), period.into());
        Self { tokens: capacity.clone(), at: 0, per_ns, capacity }
    }

    /// Returns the remaining tokens, and the wait if the cost does not fit.
    fn take(&mut self, cost: u64, now: u64) -> (u64, Option<Wait>) {
        let refilled = &self.per_ns * BigInt::from(now - self.at);
        self.tokens = (&self.tokens + refilled).min(self.capacity.clone());
        self.at = now;
        let wait = if whole(cost) <= self.tokens {
            self.tokens -= whole(cost);
            None
        } else if whole(cost) > self.capacity {
            Some(Wait::Never)
        } else {
            let wait = (whole(cost) - &self.tokens) / &self.per_ns;
            Some(Wait::Ns(number(&wait.ceil())))
        };
        (number(&self.tokens.floor()), wait)
    }
}

fn number(rational: &Rational) -> u64 {
    rational.to_integer().to_u64().expect("a number of 64 bits")
}

fn whole(number: u64) -> Rational {
    Rational::from_integer(number.into())
}

fn take(oracle: &mut Oracle, at_ns: u64, cost: u64) -> (u64, Option<Wait>) {
    let charges = vec![ChargeSpec(0, "a".to_owned(), cost)];
    match oracle.apply(at_ns, &Op::Take { charges }) {
        Expected::Allowed { charges, .. } => (charges[0].remaining, None),
        Expected::Denied { charges, retry_ns, .. } => (charges[0].remaining, Some(retry_ns)),
        other => panic!("{other:?} is not a decision"),
    }
}

#[test]
fn the_oracle_is_the_classic_token_bucket() {
    let rates = [
        (1, SECOND, 10),
        (7, 60 * SECOND, 3),
        (3, 2 * SECOND, 100),
        (1, 10 * SECOND, 1),
        (999_983, 60 * SECOND, 50),
        (600_000_000, SECOND, 12),
        (1, 864_000 * SECOND, 4),
        (4_294_967_291, 7, 1_000_000_000),
    ];
    let mut random = Random::new(7);
    for (tokens, period, capacity) in rates {
        let policy = PolicySpec::bucket(tokens, Duration::from_nanos(period), capacity);
        let mut oracle = Oracle::new(vec![LimitSpec::named("client", policy)]);
        let mut classic = Classic::new(tokens, period, whole(capacity));
        let full = u64::try_from(u128::from(capacity) * u128::from(period) / u128::from(tokens));
        let full = full.unwrap().max(4);
        let (mut now, mut last) = (0_u64, 0);
        for step in 0..2_000 {
            now += match random.below(6) {
                0 => random.next() % (full / 2),
                1 => random.next() % (full / 4) + 1,
                2 => last,
                3 => 1,
                _ => 0,
            };
            let cost = [1, 1, 1, 0, capacity / 3, capacity + 1][random.below(6) as usize];
            let expected = classic.take(cost, now);
            assert_eq!(take(&mut oracle, now, cost), expected, "{tokens}/{period} step {step}");
            if let (_, Some(Wait::Ns(wait))) = expected {
                last = wait;
            }
        }
    }
}

/// R146, R236: a fractional capacity is refused because it is the same as smaller units.
#[test]
fn a_fractional_capacity_equals_a_scaled_unit() {
    let mut random = Random::new(5);
    for (twice, tokens, period) in [(5, 1, SECOND), (3, 7, 60 * SECOND), (21, 600_000_000, SECOND)]
    {
        let scaled = PolicySpec::bucket(2 * tokens, Duration::from_nanos(period), twice);
        let mut oracle = Oracle::new(vec![LimitSpec::named("scaled", scaled)]);
        let mut halves = Classic::new(tokens, period, Rational::new(twice.into(), 2.into()));
        let mut now = 0;
        for step in 0..1_000 {
            now += random.next() % (period / tokens * 2).max(4);
            let cost = u64::from(random.below(4));
            let (remaining, wait) = halves.take(cost, now);
            let (scaled_remaining, scaled_wait) = take(&mut oracle, now, 2 * cost);
            assert_eq!((scaled_remaining / 2, scaled_wait), (remaining, wait), "step {step}");
        }
    }
}

#[test]
fn a_strict_window_never_holds_more_than_its_tokens() {
    let mut random = Random::new(11);
    for (tokens, window_ns, burst) in
        [(10, SECOND, 1), (10, SECOND, 4), (10, SECOND, 10), (7, 1_001, 3), (5, 60 * SECOND, 5)]
    {
        let policy = PolicySpec::StrictWindow { tokens, window_ns, burst };
        let mut oracle = Oracle::new(vec![LimitSpec::named("strict", policy)]);
        let mut admitted: Vec<u64> = Vec::new();
        let (mut now, mut last) = (0, 0);
        for _ in 0..2_000 {
            now += [0, 0, last, random.next() % (window_ns / 10)][random.below(4) as usize];
            match take(&mut oracle, now, 1) {
                (_, None) => admitted.push(now),
                (_, Some(Wait::Ns(wait))) => last = wait,
                (_, Some(wait)) => panic!("{wait:?}"),
            }
        }
        let tokens = usize::try_from(tokens).unwrap();
        assert!(admitted.len() > 3 * tokens, "the windows were filled");
        for group in admitted.windows(tokens + 1) {
            assert!(group[tokens] - group[0] > window_ns, "{} in one window", tokens + 1);
        }
    }
}
