//! Limit feedback: corrects our bucket by what a provider reports and refuses.
//!
//! Our token bucket mirrors the provider's, so the two are compared. Ours is raised if theirs holds
//! more, because our estimates were too high or it refunded tokens, and lowered if theirs is nearly
//! empty, for example because other clients use the same key. A report may describe the time of
//! admission or of the response; each direction assumes the worse of the two, so a correction is
//! never wrong for that reason.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tidegate::Policy;
use tidegate::clock::Clock;
use tidegate_core::Time;
use tidegate_providers::LimitReading;

use super::super::limit_view::ReportOrigin;
use super::super::send_rate::{Allowed, SendRate};
use super::report_trust::{Proof, Trust};
use super::{ChargeMark, LimitTracker};

/// Minimum time between queries of a bucket in a shared store.
const SHARED_PAUSE: Duration = Duration::from_millis(250);
/// Remaining amounts of shorter windows are outdated on arrival.
const SHORTEST_WINDOW: Duration = Duration::from_secs(10);
/// A raise leaves one part in this many of the limit as a margin.
pub(in crate::rate_limit) const RAISE_MARGIN: u64 = 16;
/// A reduction leaves one part in this many of the limit as a margin.
const REDUCTION_MARGIN: u64 = 50;

impl LimitTracker {
    /// Applies what the provider reported to a call sent at `mark`, `ago`, with charge `own`. Calls
    /// `then` if the bucket was credited.
    pub(in crate::rate_limit) fn apply_feedback(
        self: &Arc<Self>,
        (reading, origin): (&LimitReading, ReportOrigin),
        (mark, ago, own): (ChargeMark, Duration, u64),
        now: Time,
        then: impl FnOnce() + Send + 'static,
    ) {
        self.record.record_report(reading, origin, now);
        let is_first = reading
            .limit
            .is_some_and(|amount| self.learn(Allowed { amount, window: reading.window }, now));
        let Some(remaining) = reading.remaining else { return };
        let Some(allowed) = self.allowed() else { return };
        // An unlimited bucket has not counted charges.
        let mut trust = self.trust(reading, now);
        trust.may_lower |= is_first;
        let is_tight = remaining <= self.largest().saturating_mul(2);
        let is_news = trust.may_lower || trust.may_raise;
        if allowed.window < SHORTEST_WINDOW || !is_news || !(is_tight || self.is_due(now)) {
            return;
        }
        let charged = self.charged.load(Ordering::Relaxed);
        let since = |mark: i64| u64::try_from(charged.saturating_sub(mark)).unwrap_or(0);
        let report = Report {
            limit: allowed.amount,
            remaining,
            charged_since: since(mark.charged),
            charged_since_before: since(mark.before),
            refilled_since: allowed.in_span(ago),
            in_transit: self.in_transit(now),
            own,
            trust,
            is_first,
        };
        self.correct_by(move |level, capacity| correction(&report, level, capacity), |_| then());
    }

    /// Handles a refusal for this limit of a call that needed `needed`. If enough was reported to
    /// remain, the provider counts in shorter windows than it reports; otherwise our bucket held
    /// too much.
    pub(in crate::rate_limit) fn refused(
        self: &Arc<Self>,
        remaining: Option<u64>,
        needed: u64,
        now: Time,
    ) {
        if let Some(refill) = self.refill_time(remaining, needed) {
            self.record_shortage(Some(needed), now.after(refill));
        }
        let margin = self.allowed().map_or(0, |allowed| allowed.amount / REDUCTION_MARGIN);
        let proof = remaining.map(|remaining| {
            let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
            reports.refused(remaining, needed.saturating_add(margin), now)
        });
        if !self.counts_tokens() || self.allowed().is_none() {
            return;
        }
        if proof == Some(Proof::Against) {
            return self.with_send_rate(now, SendRate::narrow);
        }
        // The call's own charge is refunded after this.
        let upper_bound =
            i128::from(remaining.unwrap_or(0)) - i128::from(margin) - i128::from(needed);
        self.correct_by(move |level, _| level.saturating_sub(upper_bound).max(0), |_| ());
    }

    /// Returns how long the provider needs to refill from `remaining` to `needed` tokens; `None` if
    /// the limit is unknown or not on tokens.
    pub(in crate::rate_limit) fn refill_time(
        &self,
        remaining: Option<u64>,
        needed: u64,
    ) -> Option<Duration> {
        let allowed = self.allowed().filter(|_| self.counts_tokens())?;
        let missing = u128::from(needed.saturating_sub(remaining.unwrap_or(0)));
        let nanos = allowed.window.as_nanos().saturating_mul(missing);
        let nanos = nanos / u128::from(allowed.amount.max(1));
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Credits the bucket with up to `tokens`. Calls `then` if it was not full.
    pub(in crate::rate_limit) fn credit(
        self: &Arc<Self>,
        tokens: u64,
        then: impl FnOnce() + Send + 'static,
    ) {
        let tracker = self.clone();
        let missing = move |level, capacity| {
            let missing: i128 = i128::from(capacity) - level;
            -missing.max(0).min(tokens.into())
        };
        self.correct_by(missing, move |delta| {
            tracker.charged.fetch_add(delta, Ordering::Relaxed);
            tracker.record.record_refund(delta.unsigned_abs(), tracker.clock.now());
            then();
        });
    }

    /// Fills the bucket to what one call takes.
    pub(in crate::rate_limit) fn lend(
        self: &Arc<Self>,
        tokens: u64,
        then: impl FnOnce() + Send + 'static,
    ) {
        let missing =
            move |level: i128, capacity: u64| (level - i128::from(tokens.min(capacity))).min(0);
        self.correct_by(missing, |_| then());
    }

    fn trust(&self, reading: &LimitReading, now: Time) -> Trust {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let trust = reports.assess(reading, now);
        // Token estimates can be too high, call counts cannot. Charges by other processes to a
        // shared bucket are unknown here.
        Trust { may_raise: trust.may_raise && self.counts_tokens() && !self.is_shared, ..trust }
    }

    /// Returns whether a shared store may be queried again.
    fn is_due(&self, now: Time) -> bool {
        if !self.is_shared {
            return true;
        }
        let last = self.last_compared.load(Ordering::Relaxed);
        let due = now.since(Time::from_nanos(last)) >= SHARED_PAUSE || last == 0;
        let (order, now) = (Ordering::Relaxed, now.as_nanos());
        due && self.last_compared.compare_exchange(last, now, order, order).is_ok()
    }

    /// Charges the bucket the amount that `delta` computes from its level and capacity; a negative
    /// amount is a credit, which is passed to `given`.
    fn correct_by(
        self: &Arc<Self>,
        delta: impl FnOnce(i128, u64) -> i128 + Send + 'static,
        given: impl FnOnce(i64) + Send + 'static,
    ) {
        let tracker = self.clone();
        // Two reports at once must not both correct the same difference. A store in process has
        // finished when this returns.
        let _one_at_a_time = self.correcting.lock().unwrap_or_else(PoisonError::into_inner);
        self.bucket.store().detach(async move {
            let Some((level, capacity)) = tracker.level().await else { return };
            let corrected = tracker.correct(delta(level, capacity)).await;
            if corrected < 0 {
                given(corrected);
            }
        });
    }

    /// Returns the level of the bucket, negative if in debt, and its capacity.
    pub(super) async fn level(&self) -> Option<(i128, u64)> {
        let limiter = self.bucket.limiter();
        let Policy::Bucket(policy) = limiter.policy() else { return None };
        let decision = limiter.peek(self.bucket.key()).cost(0).await.ok()?;
        let reset = decision.outcomes().first()?.reset?;
        let rate = policy.rate();
        let missing = reset.as_nanos() * u128::from(rate.tokens()) / u128::from(rate.period());
        let level = i128::from(policy.capacity()) - i128::try_from(missing).unwrap_or(i128::MAX);
        Some((level, policy.capacity()))
    }

    /// Charges the bucket, or credits it if `delta` is negative. Returns the amount applied.
    async fn correct(&self, delta: i128) -> i64 {
        let delta = i64::try_from(delta).unwrap_or(0);
        if delta == 0 {
            return 0;
        }
        let limiter = self.bucket.limiter();
        if let Err(error) = limiter.settle(self.bucket.key(), delta, None).await {
            tracing::debug!(limit = limiter.limit().name(), %error, "limit feedback not applied");
            return 0;
        }
        delta
    }
}

/// A report, and what happened since the call was sent.
#[derive(Clone, Copy, Debug)]
struct Report {
    /// Allowed amount per window.
    limit: u64,
    /// Reported remaining amount.
    remaining: u64,
    /// Our charges since then.
    charged_since: u64,
    /// Our charges since then, and those of earlier calls that may have arrived later.
    charged_since_before: u64,
    /// Refill of the provider's bucket in that time.
    refilled_since: u64,
    /// Charges so recent that the provider may not have seen them when it responded.
    in_transit: u64,
    /// Charge of the call itself: the provider may have refunded part of it already, and so will
    /// we.
    own: u64,
    trust: Trust,
    /// Whether the limit was unknown before.
    is_first: bool,
}

/// Returns the correction of our bucket: positive to charge it, negative to credit it, zero if it
/// is too small to matter.
fn correction(report: &Report, level: i128, capacity: u64) -> i128 {
    let Report { limit, remaining, trust, .. } = *report;
    // To lower: the most that the provider can have left if the report is from the admission.
    let since = i128::from(report.refilled_since) - i128::from(report.charged_since);
    let upper_bound = i128::from(remaining) + since.max(0) - i128::from(limit / REDUCTION_MARGIN);
    // To raise: the least that it can have left in either case.
    let unseen = report.charged_since_before.saturating_sub(report.refilled_since);
    let unseen = unseen.max(report.in_transit);
    let upper_bound = match report.is_first {
        // Calls sent since may or may not be included in the report.
        true => i128::from(remaining.saturating_sub(report.charged_since)),
        false => upper_bound,
    };
    let margin = (limit / RAISE_MARGIN).saturating_add(trust.rounding).saturating_add(report.own);
    let lower_bound = i128::from(remaining) - i128::from(unseen) - i128::from(margin);
    let lower_bound = lower_bound.min(capacity.into());
    let delta = if trust.may_lower && level > upper_bound {
        level - upper_bound
    } else if trust.may_raise && level < lower_bound {
        level - lower_bound
    } else {
        0
    };
    let threshold = i128::from((capacity / 50).max(1));
    if delta.abs() < threshold { 0 } else { delta }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use futures_util::FutureExt as _;
    use tidegate::clock::TokioClock;
    use tidegate_providers::Dimension;

    use super::*;
    use crate::rate_limit::bucket::local_engine;
    use crate::rate_limit::limit_tracker::{LimitKind, TrackerSpec};

    const BOTH: Trust = Trust { may_lower: true, may_raise: true, rounding: 0 };

    /// 90,000 tokens per minute, 1,500 per second.
    fn tokens(remaining: u64) -> Report {
        Report {
            limit: 90_000,
            remaining,
            charged_since: 0,
            charged_since_before: 0,
            refilled_since: 0,
            in_transit: 0,
            own: 0,
            trust: BOTH,
            is_first: false,
        }
    }

    fn corrected(report: &Report, level: i128) -> i128 {
        correction(report, level, 90_000)
    }

    /// Many calls wait for the first report, and their responses arrive together.
    #[test]
    fn concurrent_first_reports_lower_the_bucket_once() {
        const RESPONSES: usize = 4;
        for round in 0..3_000 {
            let spec = TrackerSpec::Paced(
                LimitKind::Dimension(Dimension::Requests),
                SendRate::unlimited(),
            );
            let clock = TokioClock::new();
            let tracker =
                Arc::new(LimitTracker::new(&local_engine(), "openai", spec, clock).unwrap());
            let now = tracker.clock.now();
            let window = Duration::from_secs(60);
            let reading =
                LimitReading { limit: Some(600), remaining: Some(0), reset: None, window };
            let mark = tracker.charge(1, now);
            let start = Barrier::new(RESPONSES);
            thread::scope(|scope| {
                for _ in 0..RESPONSES {
                    scope.spawn(|| {
                        start.wait();
                        let charge = (mark, Duration::ZERO, 1);
                        tracker.apply_feedback(
                            (&reading, ReportOrigin::Response),
                            charge,
                            now,
                            || {},
                        );
                    });
                }
            });
            let (level, capacity) = tracker.level().now_or_never().flatten().unwrap();
            assert_eq!(capacity, 1);
            assert!((-1..=1).contains(&level), "{level} in round {round}");
        }
    }

    #[test]
    fn agreeing_report_changes_nothing() {
        for level in [64_000, 66_000, 68_000] {
            assert_eq!(corrected(&tokens(70_000), level), 0, "{level}");
        }
    }

    #[test]
    fn usage_by_other_clients_is_waited_for() {
        assert_eq!(corrected(&tokens(3_800), 80_000), 78_000, "down to 2,000");
        assert_eq!(corrected(&tokens(0), 5_000), 6_800, "into debt until enough is refilled");
        assert_eq!(corrected(&tokens(0), -1_800), 0, "once, not with every response");
        let doubtful = Report { trust: Trust { may_lower: false, ..BOTH }, ..tokens(0) };
        assert_eq!(corrected(&doubtful, 80_000), 0);
    }

    #[test]
    fn reported_remainder_raises_the_bucket() {
        assert_eq!(corrected(&tokens(80_000), -3_000), -77_375);
        assert_eq!(corrected(&tokens(90_000), 2_000), -82_375, "all but a sixteenth");
        let counted = Report { trust: Trust { may_raise: false, ..BOTH }, ..tokens(80_000) };
        assert_eq!(corrected(&counted, -3_000), 0);
    }

    #[test]
    fn calls_missing_from_the_report_are_accounted_for() {
        let burst = Report { charged_since_before: 70_000, ..tokens(80_000) };
        assert_eq!(corrected(&burst, 2_000), -2_375, "although they were sent before it");
        let in_transit = Report { in_transit: 70_000, refilled_since: 90_000, ..tokens(80_000) };
        assert_eq!(corrected(&in_transit, 2_000), -2_375, "although much was refilled since");
        let refilled = Report { refilled_since: 45_000, charged_since: 10_000, ..tokens(2_000) };
        assert_eq!(corrected(&refilled, 30_000), 0, "the report is half a minute old");
    }

    #[test]
    fn newly_known_bucket_holds_the_reported_remainder() {
        let first = Report { is_first: true, charged_since: 3_000, ..tokens(40_000) };
        assert_eq!(corrected(&first, 88_200), 51_200);
    }

    #[test]
    fn small_differences_are_ignored() {
        assert_eq!(corrected(&tokens(3_000), 2_500), 0);
    }
}
