//! View of one limit. The bucket is only peeked at.

use std::time::Duration;

use tidegate::Policy;
use tidegate_core::Time;
use tokio::time::{Instant, timeout_at};

use super::super::limit_view::{HoldCause, LimitSource, LimitView, ReportOrigin};
use super::super::send_rate::Allowed;
use super::LimitTracker;
use super::limit_record::{LimitRecord, RecordState};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// Parameters of a view.
#[derive(Clone, Copy, Debug)]
pub(in crate::rate_limit) struct ViewContext<'a> {
    /// Name of the limit that calls wait for.
    pub(in crate::rate_limit) waits_for: Option<&'a str>,
    pub(in crate::rate_limit) now: Time,
    /// Buckets of a shared store that does not answer by then are omitted.
    pub(in crate::rate_limit) until: Instant,
}

impl LimitTracker {
    /// Returns the view; `None` if nothing is known about the limit and it delays no calls.
    pub(in crate::rate_limit) async fn view(
        &self,
        source: LimitSource,
        context: &ViewContext<'_>,
    ) -> Option<LimitView> {
        let now = context.now;
        let record = self.record.read();
        let policy = self.bucket.limiter().policy();
        let send_rate = self.send_rate_view(&policy, now);
        let slowed = send_rate.and_then(|send_rate| send_rate.slowed);
        let ramp_remaining = send_rate.and_then(|send_rate| send_rate.ramp_remaining);
        let allowed = match (&policy, self.allowed()) {
            (_, Some(Allowed { amount, window })) => Some((amount, window)),
            (Policy::Bucket(_), None) => None,
            (policy, None) => Some((policy.capacity(), DAY)),
        };
        let moves = slowed.is_some() || ramp_remaining.is_some();
        if allowed.is_none() && !moves && record.reported.is_none() {
            return None;
        }
        let bucket = match allowed {
            Some(_) => timeout_at(context.until, self.bucket_view(&policy)).await.ok().flatten(),
            // The bucket of an unknown limit means nothing.
            None => None,
        };
        let refusal = |since| (ReportOrigin::Refusal.name(), now.since(since));
        let learned = match source {
            LimitSource::Learned => {
                learned(&record, now).or(slowed.map(|(_, since)| refusal(since)))
            }
            _ => None,
        };
        Some(LimitView {
            name: self.kind.wait_reason(),
            dimension: self.kind.dimension(),
            source: source.name(),
            allowed,
            learned,
            reported: record.reported.map(|reported| reported.remaining),
            reported_in: reported_in(&record, now),
            reported_reset: record.reported.and_then(|reported| reported.reset),
            bucket,
            pace: send_rate.map(|send_rate| (send_rate.per_minute, send_rate.burst)),
            slowed_to: slowed.map(|(thousandths, _)| f64::from(thousandths) / 1_000.0),
            ramp_remaining,
            reserved: record.reserved(),
            used_in_last_minute: record.used_in_last_minute(now),
            charged: self.charged().map_or(0, |(_, charged)| charged),
            is_exhausted: record.is_exhausted(bucket.map(|(remaining, _)| remaining), now)
                || context.waits_for.is_some_and(|limit| limit == self.name()),
            in_force: true,
            applies_to: None,
        })
    }

    /// Returns the remaining hold and its cause. Only for gates, which calls do not drain.
    pub(in crate::rate_limit) async fn hold_view(
        &self,
        context: &ViewContext<'_>,
    ) -> Option<(Duration, &'static str)> {
        let Policy::Bucket(policy) = self.bucket.limiter().policy() else { return None };
        let (level, _) = timeout_at(context.until, self.level()).await.ok()??;
        // A held limit reopens empty, so its debt is what refills until then.
        let debt = u128::try_from(-level).ok().filter(|debt| *debt > 0)?;
        let rate = policy.rate();
        let nanos = debt.saturating_mul(rate.period().into()) / u128::from(rate.tokens().max(1));
        let left = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let unknown = if self.is_shared { HoldCause::AnotherNode } else { HoldCause::RateLimited };
        let cause = self.record.read().hold_cause(context.now).unwrap_or(unknown);
        Some((left, cause.name()))
    }

    async fn bucket_view(&self, policy: &Policy) -> Option<(i64, u64)> {
        let peeked = self.bucket.limiter().peek(self.bucket.key()).cost(0).await.ok()?;
        let outcome = peeked.outcomes().first()?;
        let (remaining, capacity) = (outcome.remaining, outcome.capacity);
        if let (Policy::Bucket(_), 0) = (policy, remaining) {
            // A fraction of a token counts as zero; a lower level is debt.
            let (level, capacity) = self.level().await?;
            let remaining = i64::try_from(level.min(0)).unwrap_or(i64::MIN);
            return Some((remaining, capacity));
        }
        let remaining = i64::try_from(remaining).unwrap_or(i64::MAX);
        Some((remaining, capacity))
    }

    /// Returns the current rate.
    fn send_rate_view(&self, policy: &Policy, now: Time) -> Option<SendRateView> {
        let (Some(send_rate), Policy::Bucket(policy)) = (&self.send_rate, policy) else {
            return None;
        };
        let rate = policy.rate();
        let per_minute = u128::from(rate.tokens()) * MINUTE.as_nanos() / u128::from(rate.period());
        let (slowed, ramp_remaining) =
            send_rate.change(|send_rate| (send_rate.slowed(now), send_rate.ramp_remaining(now)));
        Some(SendRateView {
            per_minute: u64::try_from(per_minute).unwrap_or(u64::MAX),
            burst: policy.capacity(),
            slowed,
            ramp_remaining,
        })
    }
}

/// Current rate of a limit.
#[derive(Clone, Copy)]
struct SendRateView {
    per_minute: u64,
    burst: u64,
    /// Fraction of the rate left after push-back, in thousandths, and since when.
    slowed: Option<(u32, Time)>,
    ramp_remaining: Option<Duration>,
}

/// View of a reported limit without a bucket.
pub(in crate::rate_limit) fn view_of_reports(
    record: &LimitRecord,
    (name, dimension): (&'static str, tidegate_providers::Dimension),
    now: Time,
) -> Option<LimitView> {
    let record = record.read();
    let of_record = record.learned.map(|learned| (learned.amount, learned.window));
    if of_record.is_none() && record.reported.is_none() {
        return None;
    }
    Some(LimitView {
        name,
        dimension: Some(dimension),
        source: LimitSource::Learned.name(),
        allowed: of_record,
        learned: learned(&record, now),
        reported: record.reported.map(|reported| reported.remaining),
        reported_in: reported_in(&record, now),
        reported_reset: record.reported.and_then(|reported| reported.reset),
        bucket: None,
        pace: None,
        slowed_to: None,
        ramp_remaining: None,
        reserved: 0,
        used_in_last_minute: 0,
        charged: 0,
        is_exhausted: false,
        in_force: true,
        applies_to: None,
    })
}

fn learned(record: &RecordState, now: Time) -> Option<(&'static str, Duration)> {
    let learned = record.learned?;
    Some((learned.from.name(), now.since(learned.at)))
}

fn reported_in(record: &RecordState, now: Time) -> Option<(&'static str, Duration)> {
    let reported = record.reported?;
    Some((reported.from.name(), now.since(reported.at)))
}
