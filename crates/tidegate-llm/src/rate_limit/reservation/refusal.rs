//! What a failure reveals about limits: which one refused the call, what its bucket holds, and how
//! long other calls must wait.

use std::time::Duration;

use tidegate::pacer::PermitOutcome;
use tidegate_core::Time;
use tidegate_providers::{Class, Dimension, Failure, ReportedLimits};

use super::{ActiveCall, CallGrant, LimitCharge, MAX_RETRY_AFTER};
use crate::call::CallError;
use crate::rate_limit::limit_tracker::LimitKind;
use crate::rate_limit::limit_view::{HoldCause, ReportOrigin};
use crate::rate_limit::model_limits::LimitKnowledge;
use crate::rate_limit::send_rate::SendRate;

const SECOND: Duration = Duration::from_secs(1);

impl ActiveCall {
    /// Updates the queue and the model from a failure.
    pub(super) fn learn_from(&mut self, error: &CallError) {
        self.refused_by = self.find_refusing(error);
        let refused_by = self.refused_by;
        let CallGrant { charges, sent_at, epoch, .. } = &self.grant;
        let now = self.queue.now();
        if let Some(failure) = error.failure() {
            let reported = (&failure.reported_limits, ReportOrigin::Refusal);
            self.queue.apply_feedback(&self.model_limits, reported, charges, *sent_at);
            if failure.class.after().is_some_and(|after| after > MAX_RETRY_AFTER)
                || matches!(failure.class, Class::ExhaustedQuota { .. })
            {
                return self.model_limits.close(failure, now);
            }
        }
        match error.class() {
            Class::RateLimited { after, .. } if error.was_sent() => {
                let knowledge = self.limit_knowledge();
                let throttled =
                    self.model_limits.throttled(*epoch, (after, refused_by), knowledge, now);
                let reported = error.failure().map(|failure| &failure.reported_limits);
                if !throttled.pause.is_zero() && !self.bucket_delays_enough(reported, after) {
                    self.model_limits.gate().hold(throttled.pause, HoldCause::RateLimited);
                }
                self.refused(reported, now);
                for charge in refused_by.into_iter().flat_map(|one| self.charges_on(one)) {
                    charge.tracker.record_shortage(None, now.after(throttled.pause));
                }
                if throttled.is_slower && refused_by.is_none_or(|one| one == Dimension::Requests) {
                    // A provider that refuses the configured rate counts in shorter windows than a
                    // minute.
                    let requests = charges.iter().filter(|charge| charge.tracker.counts_requests());
                    requests
                        .for_each(|charge| charge.tracker.with_send_rate(now, SendRate::smooth));
                }
                self.queue.notify_throttled(throttled);
            }
            Class::SlowDown if self.model_limits.slow_down(*epoch, now) => {
                self.queue.notify_slowed_down();
            }
            _ => {}
        }
    }

    /// Returns the limit that refused the call: the one that the provider names, else one with less
    /// reported than the call needs.
    fn find_refusing(&self, error: &CallError) -> Option<Dimension> {
        let Class::RateLimited { dimension, .. } = error.class() else { return None };
        let failure = error.failure().filter(|_| error.was_sent())?;
        let is_short = |charge: &&LimitCharge| {
            let LimitKind::Dimension(dimension) = charge.tracker.kind() else { return false };
            let reading = failure.reported_limits.get(dimension);
            reading.and_then(|one| one.remaining).is_some_and(|remaining| remaining < charge.cost)
        };
        let short = self.grant.charges.iter().find(is_short).map(|charge| charge.tracker.kind());
        match (dimension, short) {
            (Some(dimension), _) | (None, Some(LimitKind::Dimension(dimension))) => Some(dimension),
            _ => None,
        }
    }

    /// Corrects the limit that refused the call: its bucket held too much, or counts differently.
    fn refused(&self, reported: Option<&ReportedLimits>, now: Time) {
        let CallGrant { charges, sent_call, .. } = &self.grant;
        let Some(refused) = self.refused_by else { return };
        if refused.counts_tokens() {
            self.model_limits.infer(|inference| inference.refused(sent_call, now));
        }
        for charge in charges {
            let LimitKind::Dimension(counted) = charge.tracker.kind() else { continue };
            let is_same = counted == refused || refused.counts_tokens() && counted.counts_tokens();
            let remaining = reported.and_then(|reported| reported.get(counted)?.remaining);
            // Of input and output, the one that is short refused the call.
            if is_same && (counted == refused || remaining.is_some()) {
                charge.tracker.refused(remaining, charge.cost, now);
            }
        }
    }

    /// Returns how long the bucket delays a call like this one, if it was refused for tokens.
    pub(super) fn refill_time(&self, reported: Option<&ReportedLimits>) -> Option<Duration> {
        let dimension = self.refused_by?;
        let remaining = reported.and_then(|reported| reported.get(dimension)?.remaining);
        let same = self.charges_on(dimension);
        same.filter_map(|charge| charge.tracker.refill_time(remaining, charge.cost)).max()
    }

    /// Returns whether the bucket delays other calls about as long as the provider asks for. Then
    /// smaller calls, or calls that get a refund, need not wait as long as the refused one. A
    /// provider that asks for longer counts in fixed windows and is closed until the next one.
    fn bucket_delays_enough(
        &self,
        reported: Option<&ReportedLimits>,
        after: Option<Duration>,
    ) -> bool {
        let refill = self.refill_time(reported);
        refill.zip(after).is_some_and(|(refill, after)| after <= refill * 3 / 2 + SECOND)
    }

    /// Returns whether the limit that refused the call is known. If none is named, it is the
    /// request limit.
    fn limit_knowledge(&self) -> LimitKnowledge {
        let dimension = self.refused_by.unwrap_or(Dimension::Requests);
        let is_set = self.charges_on(dimension).any(|charge| charge.tracker.allowed().is_some());
        match is_set || self.model_limits.is_known(dimension) {
            true => LimitKnowledge::Known,
            false if self.queue.pacer().gauges().in_flight > 1 => LimitKnowledge::UnknownButServing,
            false => LimitKnowledge::Unknown,
        }
    }

    /// Charges of the call to limits on `dimension`.
    fn charges_on(&self, dimension: Dimension) -> impl Iterator<Item = &LimitCharge> {
        let kind = LimitKind::Dimension(dimension);
        self.grant.charges.iter().filter(move |charge| charge.tracker.kind() == kind)
    }

    /// Returns whether a reported limit is lower than the minimum charge of the call, so that it
    /// can never fit.
    pub(super) fn never_fits(&self, failure: &Failure) -> bool {
        let accounting = self.queue.settings().accounting;
        let mut tokens =
            failure.reported_limits.iter().filter(|(dimension, _)| dimension.counts_tokens());
        tokens.any(|(dimension, reading)| {
            let cost = accounting.cost(dimension, self.estimate.minimum);
            reading.limit.is_some_and(|limit| cost > limit)
        })
    }

    /// Outcome for adaptive concurrency: only a throttle that no known limit explains concerns it.
    pub(super) fn outcome(&self, error: &CallError) -> PermitOutcome {
        match error.class() {
            // A breaker that opened, or a deadline that ended, while the call waited is not push-back
            // of the provider.
            _ if error.is_local() => PermitOutcome::Ignored,
            Class::RateLimited { after, .. } if self.limit_knowledge() != LimitKnowledge::Known => {
                PermitOutcome::Throttled { retry_after: after }
            }
            Class::Overloaded | Class::SlowDown => PermitOutcome::Overloaded,
            Class::Transient => PermitOutcome::Failed,
            _ => PermitOutcome::Ignored,
        }
    }
}
