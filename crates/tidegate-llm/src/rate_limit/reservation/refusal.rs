//! What a failure says about the limits of a call: which one refused it, what its buckets hold then, and
//! how long others wait.

use std::time::Duration;

use tidegate::pacer::CallOutcome;
use tidegate_core::Time;
use tidegate_providers::{Class, Dimension, Failure, ReportedLimits};

use super::{Held, LONG, Leave, Line};
use crate::call::CallError;
use crate::rate_limit::limit_view::{HoldCause, ReportOrigin};
use crate::rate_limit::meter::Counts;
use crate::rate_limit::pace::Pace;
use crate::rate_limit::quota::Known;

const SECOND: Duration = Duration::from_secs(1);

impl Held {
    /// What the lane and the model learn from a failure.
    pub(super) fn note(&mut self, error: &CallError) {
        self.refused_by = self.find_refusing(error);
        let refused_by = self.refused_by;
        let Leave { lines, left, epoch, .. } = &self.leave;
        let now = self.lane.now();
        if let Some(failure) = error.failure() {
            let reported = (&failure.reported_limits, ReportOrigin::Refusal);
            self.lane.hear(&self.quota, reported, lines, *left);
            if failure.class.after().is_some_and(|after| after > LONG)
                || matches!(failure.class, Class::ExhaustedQuota { .. })
            {
                return self.quota.close(failure, now);
            }
        }
        match error.class() {
            Class::RateLimited { after, .. } if error.was_sent() => {
                let known = self.known();
                let throttled = self.quota.throttled(*epoch, (after, refused_by), known, now);
                let reported = error.failure().map(|failure| &failure.reported_limits);
                if !throttled.pause.is_zero() && !self.waits_itself(reported, after) {
                    self.quota.gate().hold(throttled.pause, HoldCause::RateLimited);
                }
                self.refused(reported, now);
                for line in refused_by.into_iter().flat_map(|one| self.lines_of(one)) {
                    line.meter.fell_short(None, now.after(throttled.pause));
                }
                if throttled.slower && refused_by.is_none_or(|one| one == Dimension::Requests) {
                    // A provider that refuses what was set counts finer than by the minute.
                    let requests = lines.iter().filter(|line| line.meter.is_of_requests());
                    requests.for_each(|line| line.meter.with_pace(now, Pace::smooth));
                }
                self.lane.throttled(throttled);
            }
            Class::SlowDown if self.quota.slow_down(*epoch, now) => self.lane.slowed_down(),
            _ => {}
        }
    }

    /// The limit that refused the call: the one that the provider names, else the one of which it
    /// reports less than the call needs.
    fn find_refusing(&self, error: &CallError) -> Option<Dimension> {
        let Class::RateLimited { dimension, .. } = error.class() else { return None };
        let failure = error.failure().filter(|_| error.was_sent())?;
        let is_short = |line: &&Line| {
            let Counts::Dimension(dimension) = line.meter.counts() else { return false };
            let reading = failure.reported_limits.get(dimension);
            reading.and_then(|one| one.remaining).is_some_and(|left| left < line.cost)
        };
        let short = self.leave.lines.iter().find(is_short).map(|line| line.meter.counts());
        match (dimension, short) {
            (Some(dimension), _) | (None, Some(Counts::Dimension(dimension))) => Some(dimension),
            _ => None,
        }
    }

    /// The call was refused for a limit. Its buckets held too much, or count differently.
    fn refused(&self, reported: Option<&ReportedLimits>, now: Time) {
        let Leave { lines, departure, .. } = &self.leave;
        let Some(refused) = self.refused_by else { return };
        if refused.is_of_tokens() {
            self.quota.infer(|inference| inference.refused(departure, now));
        }
        for line in lines {
            let Counts::Dimension(counted) = line.meter.counts() else { continue };
            let is_same = counted == refused || refused.is_of_tokens() && counted.is_of_tokens();
            let remaining = reported.and_then(|told| told.get(counted)?.remaining);
            // Of input and output, the one that is short is the one that refused.
            if is_same && (counted == refused || remaining.is_some()) {
                line.meter.refused(remaining, line.cost, now);
            }
        }
    }

    /// How long the buckets keep a call like this one waiting, that was refused for its tokens.
    pub(super) fn refill_time(&self, reported: Option<&ReportedLimits>) -> Option<Duration> {
        let dimension = self.refused_by?;
        let remaining = reported.and_then(|told| told.get(dimension)?.remaining);
        let same = self.lines_of(dimension);
        same.filter_map(|line| line.meter.refill_time(remaining, line.cost)).max()
    }

    /// Whether the buckets keep others waiting for about as long as the provider asks for: then those
    /// that want less, or get what is given back, need not wait as long as the call that was refused.
    /// A provider that asks for longer counts in windows, and is closed until its next one.
    fn waits_itself(&self, reported: Option<&ReportedLimits>, after: Option<Duration>) -> bool {
        let refill = self.refill_time(reported);
        refill.zip(after).is_some_and(|(refill, after)| after <= refill * 3 / 2 + SECOND)
    }

    /// Whether the limit that refused is known, told or set. Without a word it is that on requests.
    fn known(&self) -> Known {
        let dimension = self.refused_by.unwrap_or(Dimension::Requests);
        let is_set = self.lines_of(dimension).any(|line| line.meter.allowed().is_some());
        match is_set || self.quota.is_known(dimension) {
            true => Known::Yes,
            false if self.lane.pacer().gauges().in_flight > 1 => Known::Served,
            false => Known::No,
        }
    }

    /// What the call was charged to limits on this.
    fn lines_of(&self, dimension: Dimension) -> impl Iterator<Item = &Line> {
        let counts = Counts::Dimension(dimension);
        self.leave.lines.iter().filter(move |line| line.meter.counts() == counts)
    }

    /// Whether a limit that was told is smaller than what the call costs for certain: then it does
    /// not fit, however long anybody waits.
    pub(super) fn never_fits(&self, failure: &Failure) -> bool {
        let charging = self.lane.settings().charging;
        let mut tokens =
            failure.reported_limits.iter().filter(|(dimension, _)| dimension.is_of_tokens());
        tokens.any(|(dimension, reading)| {
            let cost = charging.cost(dimension, self.estimate.certain);
            reading.limit.is_some_and(|limit| cost > limit)
        })
    }

    /// What a concurrency that adapts learns: only a throttle that no limit explains is about it.
    pub(super) fn outcome(&self, error: &CallError) -> CallOutcome {
        match error.class() {
            // A breaker that opened while the call waited is no push-back of the provider.
            _ if matches!(error, CallError::Open { .. }) => CallOutcome::Ignored,
            Class::RateLimited { after, .. } if self.known() != Known::Yes => {
                CallOutcome::Throttled { retry_after: after }
            }
            Class::Overloaded | Class::SlowDown => CallOutcome::Overloaded,
            Class::Transient => CallOutcome::Failed,
            _ => CallOutcome::Ignored,
        }
    }
}
