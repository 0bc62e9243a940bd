//! The rate at which calls may be sent: what a provider allows, less a margin, lowered for a while
//! after push-back and while ramping up. Pure: time is an argument.
//!
//! A provider that allows 600 requests per minute may count each second separately. A client that
//! sends at exactly the limit is then refused occasionally, since its seconds start at other
//! instants. A margin of 1.5 % almost always avoids that, whatever the phase.

use std::time::Duration;

use tidegate::{Policy, PolicyError};
use tidegate_core::Time;

/// Margin below a provider's limit, in thousandths.
pub(super) const MARGIN: u32 = 15;

/// Rate of an unknown limit, which never delays calls. It is near the maximum of a bucket: some
/// accounts have quotas of many million tokens per second.
const UNLIMITED: (u64, Duration) = (500_000_000, Duration::from_secs(1));
/// Maximum charge to an unknown limit: far below its rate, so that calls never delay each other.
pub(super) const MAX_UNKNOWN_COST: u64 = 1_000_000;
/// Capacity of a window-sized bucket, in thousandths of the limit.
const WINDOW_CAPACITY: u64 = 980;
/// Timers have millisecond resolution: a bucket with less than two milliseconds' worth loses part
/// of a high rate.
const TIMER_BURST: Duration = Duration::from_millis(2);
/// At intervals below this, a bucket of one token loses much of the rate to timers.
const FREQUENT_INTERVAL: Duration = Duration::from_millis(40);
/// Minimum debt limit. A call larger than its limit is sent when the bucket is full, since its
/// response may report a different limit; if refused here it would never be sent.
const MAX_COST: u64 = 10_000_000;
/// Maximum time to pay off a debt, as buckets cannot represent more.
const MAX_DEBT_TIME: Duration = Duration::from_secs(40 * 365 * 86_400);
/// Step of rate factors in thousandths, so that policies do not change constantly.
const STEP: u32 = 25;
/// Recovery of a lowered rate per second, in thousandths.
const RECOVERY_PER_SECOND: u64 = 10;
/// Factor applied by push-back, in thousandths.
const SLOW_DOWN_FACTOR: u32 = 800;
/// Minimum factor after repeated push-back, in thousandths.
const MIN_FACTOR: u32 = 100;
/// Factor at which a limit that was only observed is dropped: it doubled without push-back.
const FORGET_FACTOR: u32 = 2_000;

/// An amount per time window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) amount: u64,
    pub(crate) window: Duration,
}

impl Allowed {
    pub(crate) const fn per_minute(amount: u64) -> Self {
        Self { amount, window: Duration::from_secs(60) }
    }

    /// Amount in `span`, rounded down.
    pub(crate) fn in_span(self, span: Duration) -> u64 {
        let amount = u128::from(self.amount).saturating_mul(span.as_nanos());
        u64::try_from(amount / self.window.as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    /// Returns whether `other` is larger by more than a step.
    fn is_well_below(self, other: Self) -> bool {
        let other = u128::from(other.in_span(self.window)) * 1_000;
        other > u128::from(self.amount) * u128::from(1_000 + STEP)
    }

    /// Scales the amount. Small amounts are expressed per thousand windows to keep fractions; large
    /// ones are rounded down, since a rate has at most 32 bits.
    fn part(self, millionths: u64) -> Self {
        let windows: u32 = if self.amount <= 2_000_000 { 1_000 } else { 1 };
        let amount = u128::from(self.amount) * u128::from(windows) * u128::from(millionths);
        let amount = u32::try_from(amount / 1_000_000).unwrap_or(u32::MAX).max(1);
        Self { amount: amount.into(), window: self.window.saturating_mul(windows) }
    }
}

/// Size of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Burst {
    /// A fixed amount.
    Amount(u64),
    /// What refills in this time, at least one.
    Worth(Duration),
    /// A full window less a fiftieth, as providers' buckets hold. The margin covers calls that
    /// arrive early or have a few tokens more than we counted.
    Window,
}

/// Slow growth to the limit (R349).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ramp {
    /// Initial requests per minute.
    pub(crate) floor: u64,
    /// Time until the limit is reached.
    pub(crate) over: Duration,
}

/// A rate lowered by push-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slowed {
    /// Rate that the factor applies to: the limit, or the observed rate if none is known.
    base: Allowed,
    from: u32,
    since: Time,
}

/// Rate at which calls may be sent.
#[derive(Clone, Debug)]
pub(crate) struct SendRate {
    allowed: Option<Allowed>,
    margin: u32,
    burst: Burst,
    slowed: Option<Slowed>,
    ramp: Option<ActiveRamp>,
}

/// A ramp in progress.
#[derive(Clone, Copy, Debug)]
struct ActiveRamp {
    ramp: Ramp,
    /// Limit of another tracker that the ramp leads to.
    to: Option<Allowed>,
    since: Time,
}

impl SendRate {
    pub(crate) const fn new(allowed: Option<Allowed>, burst: Burst, margin: u32) -> Self {
        Self { allowed, margin, burst, slowed: None, ramp: None }
    }

    /// Creates the rate of an unknown limit.
    pub(crate) const fn unlimited() -> Self {
        Self::new(None, Burst::Amount(1), MARGIN)
    }

    pub(crate) const fn allowed(&self) -> Option<Allowed> {
        self.allowed
    }

    /// Sets the allowed amount. Returns whether it changed.
    pub(crate) fn allow(&mut self, allowed: Allowed) -> bool {
        let before = self.allowed.replace(allowed);
        // A higher limit ends the push-back; one that fluctuates slightly or falls does not.
        let risen = before.is_none_or(|before| before.is_well_below(allowed));
        match &mut self.slowed {
            Some(slowed) if !risen => slowed.base = allowed,
            slowed => *slowed = None,
        }
        before != Some(allowed)
    }

    /// Keeps the margin and sends one call at a time: the provider counts in shorter windows than a
    /// minute.
    pub(crate) fn smooth(&mut self) {
        self.margin = self.margin.max(MARGIN);
        self.burst = Burst::Amount(1);
    }

    /// Limits bursts to a second's worth: the provider refuses calls while it reports enough for
    /// them, so it counts in shorter windows than it reports.
    pub(crate) fn narrow(&mut self) {
        self.margin = self.margin.max(MARGIN);
        self.burst = Burst::Worth(Duration::from_secs(1));
    }

    /// Starts a ramp to the allowed rate or to the limit `to`. A ramp that began within `fresh`
    /// continues.
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

    /// Changes a ramp in progress; `None` ends it.
    pub(crate) fn change_ramp(&mut self, ramp: Option<Ramp>) {
        self.ramp = self.ramp.zip(ramp).map(|(it, ramp)| ActiveRamp { ramp, ..it });
    }

    /// Lowers the rate by a fifth after push-back; it recovers in about twenty seconds. If no limit
    /// is known, the base is the observed rate `recent`.
    pub(crate) fn slow_down(&mut self, recent: Allowed, now: Time) {
        let base = self.allowed.unwrap_or(recent);
        let factor = match self.slowed {
            Some(slowed) if self.allowed.is_some() => slowed.factor(now).min(1_000),
            _ => 1_000,
        };
        let from = (factor * SLOW_DOWN_FACTOR / 1_000).max(MIN_FACTOR);
        self.slowed = Some(Slowed { base, from, since: now });
    }

    /// Returns whether the rate changes with time.
    pub(crate) const fn is_changing(&self) -> bool {
        self.slowed.is_some() || self.ramp.is_some()
    }

    /// Returns the factor left after push-back, in thousandths, and since when.
    pub(crate) fn slowed(&self, now: Time) -> Option<(u32, Time)> {
        let over = if self.allowed.is_some() { 1_000 } else { FORGET_FACTOR };
        let slowed = self.slowed.filter(|slowed| slowed.factor(now) < over)?;
        Some((slowed.factor(now), slowed.since))
    }

    /// Returns the time until the ramp ends.
    pub(crate) fn ramp_remaining(&self, now: Time) -> Option<Duration> {
        let ActiveRamp { ramp, since, .. } = self.ramp?;
        Some(ramp.over.saturating_sub(now.since(since))).filter(|left| !left.is_zero())
    }

    /// Returns the current policy of the bucket.
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

    /// Returns the allowed or observed rate and the factor that applies, in thousandths.
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
            // Without a known limit the floor doubles with every tenth of the time.
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

    /// Rate in thousandths of tokens per minute.
    fn per_minute(send_rate: &mut SendRate, now: Time) -> u64 {
        let Policy::Bucket(bucket) = send_rate.policy(now).unwrap() else { panic!("no bucket") };
        let tokens = u128::from(bucket.rate().tokens()) * 60_000_000_000_000;
        u64::try_from(tokens / u128::from(bucket.rate().period())).unwrap()
    }

    fn known(amount: u64) -> SendRate {
        SendRate::new(Some(Allowed::per_minute(amount)), Burst::Amount(1), MARGIN)
    }

    #[test]
    fn rate_stays_below_the_limit_by_the_margin() {
        assert_eq!(per_minute(&mut known(600), START), 591_000);
        let mut exact = SendRate::new(Some(Allowed::per_minute(600)), Burst::Amount(600), 0);
        assert_eq!(per_minute(&mut exact, START), 600_000);
        exact.smooth();
        assert_eq!(per_minute(&mut exact, START), 591_000);
    }

    #[test]
    fn push_back_lowers_the_rate_and_it_recovers_gradually() {
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
    fn push_back_without_a_limit_lowers_the_observed_rate_and_is_forgotten() {
        let mut send_rate = SendRate::new(None, Burst::Amount(1), MARGIN);
        let wide = per_minute(&mut send_rate, START);
        assert!(wide > 1_000_000_000);
        send_rate.slow_down(Allowed::per_minute(100), START);
        assert_eq!(per_minute(&mut send_rate, START), 78_800);
        assert!(per_minute(&mut send_rate, at(60)) > 100_000);
        assert_eq!(per_minute(&mut send_rate, at(130)), wide);
    }

    #[test]
    fn ramp_grows_from_its_floor_to_the_limit() {
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
    fn ramp_can_lead_to_another_limit_and_be_changed() {
        let ramp = Ramp { floor: 100, over: Duration::from_secs(60) };
        let mut send_rate = SendRate::new(None, Burst::Amount(1), 0);
        send_rate.ramp_up((ramp, Some(Allowed::per_minute(1_000))), Duration::ZERO, START);
        assert_eq!(per_minute(&mut send_rate, START), 100_000);
        assert!((500_000..600_000).contains(&per_minute(&mut send_rate, at(30))));
        send_rate.ramp_up((ramp, None), Duration::from_secs(60), at(30));
        assert!(per_minute(&mut send_rate, at(30)) > 500_000, "the ramp continues");
        send_rate.change_ramp(Some(Ramp { over: Duration::from_secs(600), ..ramp }));
        assert!((140_000..150_000).contains(&per_minute(&mut send_rate, at(30))));
        send_rate.change_ramp(None);
        assert!(per_minute(&mut send_rate, at(30)) > 1_000_000_000);
    }

    #[test]
    fn window_bucket_holds_a_full_window_until_narrowed() {
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
    fn high_rate_gets_a_bucket_that_timers_can_serve() {
        let Policy::Bucket(bucket) = known(120_000).policy(START).unwrap() else { panic!() };
        assert_eq!(bucket.capacity(), 3, "two milliseconds' worth");
        let Policy::Bucket(bucket) = known(60).policy(START).unwrap() else { panic!() };
        assert_eq!(bucket.capacity(), 1);
    }
}
