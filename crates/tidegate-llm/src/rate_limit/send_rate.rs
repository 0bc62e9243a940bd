//! How fast calls may leave: what a provider allows, less a margin, and slower for a while after
//! it complained or while it is not used to us yet. Pure: time comes in as an argument.
//!
//! A provider that allows 600 requests a minute may count each second by itself. Whoever sends at
//! exactly the limit is then refused now and then, as seconds here and there do not begin together;
//! a margin of 1.5 % is enough to be refused next to never, whatever the phase.

use std::time::Duration;

use tidegate::{Policy, PolicyError};
use tidegate_core::Time;

/// So many of a thousand are left alone, where limits are the provider's.
pub(super) const MARGIN: u32 = 15;

/// A rate that nobody reaches; where nothing is known, calls are not held back. It is near the
/// highest that a bucket can have: some accounts have quotas of many million tokens a second.
const UNLIMITED: (u64, Duration) = (500_000_000, Duration::from_secs(1));
/// What a call is charged at most where nothing is known: far below the above, so that nobody is
/// held up by what another allows itself.
pub(super) const MAX_UNKNOWN_COST: u64 = 1_000_000;
/// How much of a window a bucket holds, in a thousand.
const WINDOW_CAPACITY: u64 = 980;
/// Timers have a millisecond: with less than two of them in a bucket part of a high rate is lost.
const TIMER_BURST: Duration = Duration::from_millis(2);
/// What comes more often than this by one loses a good part to timers, if there is no room for two.
const FREQUENT_INTERVAL: Duration = Duration::from_millis(40);
/// No call costs more than this. A call that is larger than its limit goes when the bucket is full,
/// and its answer may tell that the limit is another; refused, it would never be heard.
const MAX_COST: u64 = 10_000_000;
/// Debts are paid within some decades, as buckets cannot count longer.
const MAX_DEBT_TIME: Duration = Duration::from_secs(40 * 365 * 86_400);
/// Factors change in steps of this many in a thousand, so that policies do not change all the time.
const STEP: u32 = 25;
/// By how much of a thousand a lowered rate recovers in a second.
const RECOVERY_PER_SECOND: u64 = 10;
/// What is left of a rate after a complaint, in a thousand.
const SLOW_DOWN_FACTOR: u32 = 800;
/// The lowest that complaints bring a rate to, in a thousand.
const MIN_FACTOR: u32 = 100;
/// A rate that was only observed is no longer kept to when it was doubled without a complaint.
const FORGET_FACTOR: u32 = 2_000;

/// An amount in a window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) amount: u64,
    pub(crate) window: Duration,
}

impl Allowed {
    /// So many in a minute.
    pub(crate) const fn per_minute(amount: u64) -> Self {
        Self { amount, window: Duration::from_secs(60) }
    }

    /// How much that is in a span, rounded down.
    pub(crate) fn in_span(self, span: Duration) -> u64 {
        let amount = u128::from(self.amount).saturating_mul(span.as_nanos());
        u64::try_from(amount / self.window.as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    /// Whether another is larger by more than a step.
    fn is_well_below(self, other: Self) -> bool {
        let other = u128::from(other.in_span(self.window)) * 1_000;
        other > u128::from(self.amount) * u128::from(1_000 + STEP)
    }

    /// So many millionths of it. Small amounts are told for a thousand windows, to keep their
    /// fractions; large ones are rounded down, as a rate has no more than 32 bits.
    fn part(self, millionths: u64) -> Self {
        let windows: u32 = if self.amount <= 2_000_000 { 1_000 } else { 1 };
        let amount = u128::from(self.amount) * u128::from(windows) * u128::from(millionths);
        let amount = u32::try_from(amount / 1_000_000).unwrap_or(u32::MAX).max(1);
        Self { amount: amount.into(), window: self.window.saturating_mul(windows) }
    }
}

/// How much may leave at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Burst {
    /// So many.
    Amount(u64),
    /// What this span brings, at least one.
    Worth(Duration),
    /// All of the window but a fiftieth, as the buckets of providers hold. At their edge a call is
    /// refused that arrives a little early, or has a few tokens more than we counted.
    Window,
}

/// Growing slowly to the limit (R349): from a floor, in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ramp {
    /// Requests per minute to begin with.
    pub(crate) floor: u64,
    /// How long until the limit is reached.
    pub(crate) over: Duration,
}

/// A rate that a complaint has lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slowed {
    /// What the factor is of: what is allowed, or what was seen if nobody told.
    base: Allowed,
    from: u32,
    since: Time,
}

/// How fast calls may leave.
#[derive(Clone, Debug)]
pub(crate) struct SendRate {
    allowed: Option<Allowed>,
    margin: u32,
    burst: Burst,
    slowed: Option<Slowed>,
    ramp: Option<ActiveRamp>,
}

/// A ramp that has begun.
#[derive(Clone, Copy, Debug)]
struct ActiveRamp {
    ramp: Ramp,
    /// A limit elsewhere that it leads to, if there is one.
    to: Option<Allowed>,
    since: Time,
}

impl SendRate {
    pub(crate) const fn new(allowed: Option<Allowed>, burst: Burst, margin: u32) -> Self {
        Self { allowed, margin, burst, slowed: None, ramp: None }
    }

    /// No limit that anybody knows of.
    pub(crate) const fn unlimited() -> Self {
        Self::new(None, Burst::Amount(1), MARGIN)
    }

    pub(crate) const fn allowed(&self) -> Option<Allowed> {
        self.allowed
    }

    /// The provider allows so much, as it turns out. Whether that is news.
    pub(crate) fn allow(&mut self, allowed: Allowed) -> bool {
        let before = self.allowed.replace(allowed);
        // A limit that rises has nothing to do with what was complained about. One that flaps a
        // little, or falls, is no reason to forget it.
        let risen = before.is_none_or(|before| before.is_well_below(allowed));
        match &mut self.slowed {
            Some(slowed) if !risen => slowed.base = allowed,
            slowed => *slowed = None,
        }
        before != Some(allowed)
    }

    /// Keeps below the limit by the margin, and sends one at a time: the provider counts finer
    /// than by the minute.
    pub(crate) fn smooth(&mut self) {
        self.margin = self.margin.max(MARGIN);
        self.burst = Burst::Amount(1);
    }

    /// Sends a second's worth at once: the provider refuses calls while it reports that there is
    /// enough for them, so it counts finer than it reports.
    pub(crate) fn narrow(&mut self) {
        self.margin = self.margin.max(MARGIN);
        self.burst = Burst::Worth(Duration::from_secs(1));
    }

    /// Grows from a floor from now on, to what is allowed here or to a limit elsewhere. A ramp that
    /// began within `fresh` goes on.
    pub(crate) fn ramp_up(
        &mut self,
        (ramp, to): (Ramp, Option<Allowed>),
        fresh: Duration,
        now: Time,
    ) {
        let is_fresh = self.ramp.is_some_and(|it| now.since(it.since) < fresh);
        if !is_fresh {
            self.ramp = Some(ActiveRamp { ramp, to, since: now });
        }
    }

    /// A ramp that has begun goes on like this; with `None` it is over.
    pub(crate) fn change_ramp(&mut self, ramp: Option<Ramp>) {
        self.ramp = self.ramp.zip(ramp).map(|(it, ramp)| ActiveRamp { ramp, ..it });
    }

    /// The provider complains: slower by a fifth, recovering in some twenty seconds. Where no
    /// limit is known, slower than what was `seen`.
    pub(crate) fn slow_down(&mut self, recent: Allowed, now: Time) {
        let base = self.allowed.unwrap_or(recent);
        let factor = match self.slowed {
            Some(slowed) if self.allowed.is_some() => slowed.factor(now).min(1_000),
            _ => 1_000,
        };
        let from = (factor * SLOW_DOWN_FACTOR / 1_000).max(MIN_FACTOR);
        self.slowed = Some(Slowed { base, from, since: now });
    }

    /// Whether the pace changes with time.
    pub(crate) const fn is_changing(&self) -> bool {
        self.slowed.is_some() || self.ramp.is_some()
    }

    /// How much of a thousand of the rate is left after push-back, and since when.
    pub(crate) fn slowed(&self, now: Time) -> Option<(u32, Time)> {
        let over = if self.allowed.is_some() { 1_000 } else { FORGET_FACTOR };
        let slowed = self.slowed.filter(|slowed| slowed.factor(now) < over)?;
        Some((slowed.factor(now), slowed.since))
    }

    /// How much longer the rate grows from its floor.
    pub(crate) fn ramp_left(&self, now: Time) -> Option<Duration> {
        let ActiveRamp { ramp, since, .. } = self.ramp?;
        Some(ramp.over.saturating_sub(now.since(since))).filter(|left| !left.is_zero())
    }

    /// What the bucket is to be now.
    pub(crate) fn policy(&mut self, now: Time) -> Result<Policy, PolicyError> {
        let (base, factor) = self.base(now);
        let Some(base) = base else {
            return Policy::per(UNLIMITED.0, UNLIMITED.1).capacity(UNLIMITED.0).build();
        };
        let effective = base.part(u64::from(1_000 - self.margin.min(999)) * u64::from(factor));
        let burst = match self.burst {
            Burst::Amount(amount) => amount,
            Burst::Worth(span) => effective.in_span(span),
            Burst::Window => base.part(u64::from(factor) * WINDOW_CAPACITY).in_span(base.window),
        };
        let capacity = burst
            .max(effective.in_span(TIMER_BURST))
            .max(effective.in_span(FREQUENT_INTERVAL).min(2))
            .max(1);
        let debt =
            base.amount.saturating_mul(60).max(MAX_COST).min(effective.in_span(MAX_DEBT_TIME));
        let debt = debt.max(capacity);
        let Allowed { amount, window } = effective;
        Policy::per(amount, window).capacity(capacity).max_debt(debt).build()
    }

    /// What is allowed or was seen, and how much of a thousand of it counts.
    fn base(&mut self, now: Time) -> (Option<Allowed>, u32) {
        let ramp = self.ramped(now);
        let over = if self.allowed.is_some() { 1_000 } else { FORGET_FACTOR };
        if self.slowed.is_some_and(|slowed| slowed.factor(now) >= over) {
            self.slowed = None;
        }
        let Some(slowed) = self.slowed else { return ramp.unwrap_or((self.allowed, 1_000)) };
        let factor = slowed.factor(now).min(over) / STEP * STEP;
        (Some(slowed.base), factor.min(ramp.map_or(u32::MAX, |(_, factor)| factor)).max(1))
    }

    fn ramped(&mut self, now: Time) -> Option<(Option<Allowed>, u32)> {
        let ActiveRamp { ramp, to, since } = self.ramp?;
        let part = now.since(since).as_nanos().saturating_mul(1_000) / ramp.over.as_nanos().max(1);
        let part =
            u64::try_from(part).unwrap_or(u64::MAX).min(1_000) / u64::from(STEP) * u64::from(STEP);
        if part >= 1_000 {
            self.ramp = None;
            return None;
        }
        let floor = Allowed::per_minute(ramp.floor);
        let lower = |a: Allowed, b: Allowed| {
            let minute = Duration::from_secs(60);
            if b.in_span(minute) < a.in_span(minute) { b } else { a }
        };
        let allowed = match (self.allowed, to) {
            (Some(allowed), Some(to)) => Some(lower(allowed, to)),
            (allowed, to) => allowed.or(to),
        };
        let Some(allowed) = allowed else {
            // To where nobody knows: the floor doubles with every tenth of the time.
            let doubled = floor.amount.saturating_mul(1 << (part / 100));
            return Some((Some(Allowed { amount: doubled, ..floor }), 1_000));
        };
        let floor = floor.in_span(allowed.window).min(allowed.amount);
        let grown = floor
            + (allowed.amount - floor) / 1_000 * part
            + (allowed.amount - floor) % 1_000 * part / 1_000;
        let factor = u128::from(grown) * 1_000 / u128::from(allowed.amount.max(1));
        Some((Some(allowed), u32::try_from(factor).unwrap_or(1_000).max(1)))
    }
}

impl Slowed {
    fn factor(&self, now: Time) -> u32 {
        let seconds = now.since(self.since).as_secs();
        let recovered = seconds.saturating_mul(RECOVERY_PER_SECOND);
        self.from.saturating_add(u32::try_from(recovered).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_nanos(0);

    fn at(seconds: u64) -> Time {
        START.after(Duration::from_secs(seconds))
    }

    /// Thousandths of tokens per minute.
    fn per_minute(send_rate: &mut SendRate, now: Time) -> u64 {
        let Policy::Bucket(bucket) = send_rate.policy(now).unwrap() else { panic!("no bucket") };
        let tokens = u128::from(bucket.rate().tokens()) * 60_000_000_000_000;
        u64::try_from(tokens / u128::from(bucket.rate().period())).unwrap()
    }

    fn known(amount: u64) -> SendRate {
        SendRate::new(Some(Allowed::per_minute(amount)), Burst::Amount(1), MARGIN)
    }

    #[test]
    fn the_margin_is_kept() {
        assert_eq!(per_minute(&mut known(600), START), 591_000);
        let mut exact = SendRate::new(Some(Allowed::per_minute(600)), Burst::Amount(600), 0);
        assert_eq!(per_minute(&mut exact, START), 600_000);
        exact.smooth();
        assert_eq!(per_minute(&mut exact, START), 591_000);
    }

    #[test]
    fn a_complaint_lowers_the_rate_and_it_recovers_gradually() {
        let mut send_rate = known(600);
        let before = per_minute(&mut send_rate, START);
        send_rate.slow_down(Allowed::per_minute(1), START);
        let rates: Vec<u64> = (0..=20).map(|s| per_minute(&mut send_rate, at(s))).collect();
        assert_eq!(rates[0], before * 8 / 10);
        assert!(rates.is_sorted());
        assert_eq!(rates[20], before);
        send_rate.slow_down(Allowed::per_minute(1), at(30));
        send_rate.slow_down(Allowed::per_minute(1), at(30));
        assert_eq!(per_minute(&mut send_rate, at(30)), before * 625 / 1_000, "0.64, in steps");
    }

    #[test]
    fn where_nothing_is_known_what_was_seen_is_lowered_and_forgotten() {
        let mut send_rate = SendRate::new(None, Burst::Amount(1), MARGIN);
        let wide = per_minute(&mut send_rate, START);
        assert!(wide > 1_000_000_000);
        send_rate.slow_down(Allowed::per_minute(100), START);
        assert_eq!(per_minute(&mut send_rate, START), 78_800);
        assert!(per_minute(&mut send_rate, at(60)) > 100_000);
        assert_eq!(per_minute(&mut send_rate, at(130)), wide);
    }

    #[test]
    fn a_ramp_grows_from_its_floor_to_the_limit() {
        let mut send_rate = known(1_000);
        let ramp = Ramp { floor: 100, over: Duration::from_secs(60) };
        send_rate.ramp_up((ramp, None), Duration::ZERO, START);
        let rates: Vec<u64> = (0..=60).map(|s| per_minute(&mut send_rate, at(s))).collect();
        assert_eq!(rates[0], 98_500);
        assert!(rates.is_sorted());
        assert!((500_000..600_000).contains(&rates[30]), "{}", rates[30]);
        assert_eq!(rates[60], 985_000);
        let mut unknown = SendRate::new(None, Burst::Amount(1), 0);
        let slow = Ramp { floor: 60, over: Duration::from_secs(100) };
        unknown.ramp_up((slow, None), Duration::ZERO, START);
        assert_eq!(per_minute(&mut unknown, START), 60_000);
        assert_eq!(per_minute(&mut unknown, at(50)), 60_000 * 32);
    }

    #[test]
    fn a_ramp_leads_to_a_limit_elsewhere_and_can_be_changed() {
        let ramp = Ramp { floor: 100, over: Duration::from_secs(60) };
        let mut send_rate = SendRate::new(None, Burst::Amount(1), 0);
        send_rate.ramp_up((ramp, Some(Allowed::per_minute(1_000))), Duration::ZERO, START);
        assert_eq!(per_minute(&mut send_rate, START), 100_000);
        assert!((500_000..600_000).contains(&per_minute(&mut send_rate, at(30))));
        send_rate.ramp_up((ramp, None), Duration::from_secs(60), at(30));
        assert!(per_minute(&mut send_rate, at(30)) > 500_000, "it goes on");
        send_rate.change_ramp(Some(Ramp { over: Duration::from_secs(600), ..ramp }));
        assert!((140_000..150_000).contains(&per_minute(&mut send_rate, at(30))));
        send_rate.change_ramp(None);
        assert!(per_minute(&mut send_rate, at(30)) > 1_000_000_000);
    }

    #[test]
    fn a_bucket_of_a_window_holds_all_of_it_until_it_is_narrowed() {
        let mut send_rate = SendRate::new(Some(Allowed::per_minute(90_000)), Burst::Window, MARGIN);
        let capacity = |send_rate: &mut SendRate| send_rate.policy(START).unwrap().capacity();
        assert_eq!(capacity(&mut send_rate), 88_200);
        send_rate.slow_down(Allowed::per_minute(1), START);
        assert_eq!(capacity(&mut send_rate), 70_560);
        send_rate.allow(Allowed::per_minute(180_000));
        send_rate.narrow();
        assert_eq!(capacity(&mut send_rate), 2_955, "a second's worth, less the margin");
    }

    #[test]
    fn high_rates_get_a_bucket_that_timers_can_serve() {
        let Policy::Bucket(bucket) = known(120_000).policy(START).unwrap() else { panic!() };
        assert_eq!(bucket.capacity(), 3, "two milliseconds' worth");
        let Policy::Bucket(bucket) = known(60).policy(START).unwrap() else { panic!() };
        assert_eq!(bucket.capacity(), 1);
    }
}
