//! A meter: one limit of a scope, what was charged to it, and how fast it fills.

mod eviction_cost;
pub(super) mod limit_feedback;
pub(super) mod limit_record;
mod report_trust;
mod send_rate_cell;
pub(super) mod view;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::clock::{Clock as _, TokioClock};
use tidegate::{Change, Charge, Engine, LimitError, Policy, Retry, StoreError};
use tidegate_core::Time;
use tidegate_providers::Dimension;

use super::bucket::{Bucket, limit_name};
use super::charge_inference::REORDERING;
use super::limit_view::HoldCause;
use super::send_rate::{Allowed, MAX_UNKNOWN_COST, SendRate};
use super::token_accounting::{Amounts, TokenAccounting};
use crate::plan::Daily;
use limit_record::{LimitRecord, Shortage};
use report_trust::ReportTrust;
use send_rate_cell::SendRateCell;

/// What a meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitKind {
    /// What a provider limits.
    Dimension(Dimension),
    /// What a provider limits, over all keys of callers together.
    AllKeys(Dimension),
    /// Starts of calls, for the least time between two.
    Starts,
    /// Nothing: it is there to be closed.
    Gate,
}

impl LimitKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Dimension(dimension) => dimension.name(),
            Self::AllKeys(dimension) => of_all_keys(dimension),
            Self::Starts => "starts",
            Self::Gate => "gate",
        }
    }

    /// What waits for it are said to be for.
    pub(super) const fn wait_reason(self) -> &'static str {
        match self {
            Self::Dimension(dimension) => dimension.name(),
            Self::AllKeys(dimension) => of_all_keys(dimension),
            Self::Starts => "min_interval",
            Self::Gate => "throttled",
        }
    }

    /// What is counted, whoever's it is; `None` if it is nothing that providers limit.
    pub(super) const fn dimension(self) -> Option<Dimension> {
        match self {
            Self::Dimension(dimension) | Self::AllKeys(dimension) => Some(dimension),
            Self::Starts | Self::Gate => None,
        }
    }
}

/// The name of a limit over all keys of callers.
const fn of_all_keys(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Requests => "all_keys_requests",
        Dimension::RequestsPerDay => "all_keys_requests_per_day",
        _ => "all_keys_tokens",
    }
}

/// A meter that is asked for.
#[derive(Clone, Debug)]
pub(super) enum TrackerSpec {
    /// One that fills all the time.
    Paced(LimitKind, SendRate),
    /// One that fills at the end of the day.
    Daily(LimitKind, Daily),
}

impl TrackerSpec {
    pub(super) const fn kind(&self) -> LimitKind {
        match self {
            Self::Paced(kind, _) | Self::Daily(kind, _) => *kind,
        }
    }
}

/// How often a pace that moves is looked at.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// One limit of a scope.
#[derive(Debug)]
pub(super) struct LimitTracker {
    kind: LimitKind,
    bucket: Bucket,
    /// `None` for what refills by the calendar.
    send_rate: Option<SendRateCell>,
    /// Everything charged so far, less what was given back.
    charged: AtomicI64,
    /// The largest charge of late.
    largest: AtomicU64,
    recent: Mutex<RecentCharges>,
    reports: Mutex<ReportTrust>,
    /// What is remembered for people.
    record: LimitRecord,
    /// When the bucket was last compared with what the provider says, in nanoseconds.
    compared: AtomicU64,
    shared: bool,
    /// Whether a task keeps the pace while it moves.
    has_update_task: AtomicBool,
    clock: TokioClock,
}

/// How much was charged when a call left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// With the call itself.
    charged: i64,
    /// Without it and those that left just before it, which may arrive after it.
    before: i64,
}

/// What was charged in the present span of reordering, and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct RecentCharges {
    since: Time,
    present: i64,
    before: i64,
}

impl RecentCharges {
    /// Adds a charge, and says how much was charged of late with it.
    fn add(&mut self, cost: i64, now: Time) -> i64 {
        let elapsed = now.since(self.since);
        if elapsed >= REORDERING {
            let before = if elapsed < REORDERING * 2 { self.present } else { 0 };
            *self = Self { since: now, present: 0, before };
        }
        self.present = self.present.saturating_add(cost);
        self.present.saturating_add(self.before)
    }
}

impl LimitTracker {
    pub(super) fn new(
        engine: &Engine,
        scope: &str,
        spec: TrackerSpec,
        clock: TokioClock,
    ) -> Result<Self, LimitError> {
        let kind = spec.kind();
        let name = limit_name(kind.name(), scope);
        Ok(match spec {
            TrackerSpec::Paced(_, mut send_rate) => {
                let bucket = Bucket::new(engine, &name, send_rate.policy(clock.now())?)?;
                Self::on(bucket, kind, Some(send_rate), clock)
            }
            TrackerSpec::Daily(_, daily) => {
                let amount = daily.requests().get().into();
                let bucket = Bucket::calendar(engine, &name, amount, daily.schedule().clone())?;
                Self::on(bucket, kind, None, clock)
            }
        })
    }

    /// Counts the same under another limit. A day keeps its time zone.
    pub(super) fn set(self: &Arc<Self>, spec: &TrackerSpec, now: Time) -> Result<(), LimitError> {
        match spec {
            TrackerSpec::Paced(_, send_rate) => {
                self.with_send_rate(now, |present| *present = send_rate.clone())
            }
            TrackerSpec::Daily(_, daily) => {
                let policy = Policy::quota(daily.requests().get().into())?;
                self.bucket.limiter().reconfigure(policy, Change::KeepTokens)?;
            }
        }
        Ok(())
    }

    fn on(bucket: Bucket, kind: LimitKind, send_rate: Option<SendRate>, clock: TokioClock) -> Self {
        Self {
            kind,
            send_rate: send_rate.map(SendRateCell::new),
            charged: AtomicI64::new(0),
            largest: AtomicU64::new(0),
            recent: Mutex::default(),
            reports: Mutex::default(),
            record: LimitRecord::default(),
            compared: AtomicU64::new(0),
            shared: bucket.store().local().is_none(),
            has_update_task: AtomicBool::new(false),
            clock,
            bucket,
        }
    }

    pub(super) const fn kind(&self) -> LimitKind {
        self.kind
    }

    /// The name of its limit, by which waits are told.
    pub(super) fn name(&self) -> String {
        self.bucket.limiter().limit().name().to_owned()
    }

    /// What is allowed, if that is known.
    pub(super) fn allowed(&self) -> Option<Allowed> {
        self.send_rate.as_ref().and_then(|send_rate| send_rate.read().allowed)
    }

    /// What was charged so far; `None` if it counts nothing that a provider limits.
    pub(super) fn charged(&self) -> Option<(Dimension, u64)> {
        let LimitKind::Dimension(dimension) = self.kind else { return None };
        let charged = self.charged.load(Ordering::Relaxed);
        Some((dimension, u64::try_from(charged).unwrap_or(0)))
    }

    /// What a call is charged here.
    pub(super) fn cost(&self, accounting: TokenAccounting, amounts: Amounts) -> u64 {
        match self.kind.dimension() {
            Some(dimension) => accounting.cost(dimension, amounts),
            None => 1,
        }
    }

    /// What is reserved here for a call that goes out. No provider admits more in a minute than it
    /// allows, so a call that allows itself more output than that is not charged for it, and others
    /// do not wait for what it could never use. Its input is what it is.
    pub(super) fn reserve(&self, accounting: TokenAccounting, amounts: Amounts) -> u64 {
        let cost = self.cost(accounting, amounts);
        let input = self.cost(accounting, Amounts { output: 0, ..amounts });
        match self.max_admitted() {
            _ if !self.counts_tokens() => cost,
            Some(most) => cost.min(most.max(input)),
            // Where nothing is known, nothing is held up, whatever a call allows itself.
            None => cost.min(MAX_UNKNOWN_COST),
        }
    }

    /// What a call keeps of its charge of which nobody knows whether it was admitted: at most what
    /// the provider would have admitted.
    pub(super) fn admitted(&self, cost: u64) -> u64 {
        let most = self.max_admitted().filter(|_| self.counts_tokens());
        most.map_or(cost, |most| cost.min(most))
    }

    /// The most that is admitted in a minute, or at once if that is more.
    fn max_admitted(&self) -> Option<u64> {
        let allowed = self.allowed()?;
        Some(allowed.in_span(Duration::from_secs(60)).max(allowed.amount))
    }

    /// How long a claim of so much has to wait, if nobody is before it.
    pub(super) async fn delay(&self, cost: u64) -> Option<Duration> {
        let limiter = self.bucket.limiter();
        let cost = cost.min(limiter.policy().capacity());
        let decision = limiter.peek(self.bucket.key()).cost(cost).await.ok()?;
        decision.retry()?.after()
    }

    /// A claim, under the pace of this moment, of a call that is expected to cost so much in the end.
    pub(super) fn claim(&self, cost: u64, expected: u64, now: Time) -> Charge<'_> {
        if self.is_changing() {
            self.update_policy(now);
        }
        self.bucket.charge(cost).expected(expected)
    }

    /// The largest charge of late.
    pub(super) fn largest(&self) -> u64 {
        self.largest.load(Ordering::Relaxed)
    }

    /// A claim of so much was granted.
    pub(super) fn charge(&self, cost: u64, now: Time) -> Mark {
        self.record.charged(cost, now);
        let cost = i64::try_from(cost).unwrap_or(i64::MAX);
        // The largest fades, so that one giant does not keep a reserve for ever.
        let largest = self.largest.load(Ordering::Relaxed);
        let faded = (largest - largest / 32).max(cost.unsigned_abs());
        self.largest.store(faded, Ordering::Relaxed);
        let charged = self.charged.fetch_add(cost, Ordering::Relaxed).saturating_add(cost);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        Mark { charged, before: charged.saturating_sub(recent.add(cost, now)) }
    }

    /// What was charged so recently that a report of this moment may not know of it.
    fn in_transit(&self, now: Time) -> u64 {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        u64::try_from(recent.add(0, now)).unwrap_or(0)
    }

    /// A call has ended, and its charge was corrected.
    pub(super) fn corrected(&self, from: u64, to: u64, now: Time) {
        self.record.ended(from, to, now);
        let delta = i128::from(to) - i128::from(from);
        self.charged.fetch_add(i64::try_from(delta).unwrap_or(0), Ordering::Relaxed);
    }

    /// Holds nobody up any more. Those who wait for it go on.
    pub(super) fn retire(self: &Arc<Self>, now: Time) {
        self.with_send_rate(now, |send_rate| *send_rate = SendRate::unlimited());
    }

    /// Changes the pace, and the policy with it.
    pub(super) fn with_send_rate(self: &Arc<Self>, now: Time, change: impl FnOnce(&mut SendRate)) {
        if let Some(send_rate) = &self.send_rate {
            send_rate.change(change);
            self.update_policy(now);
            self.spawn_update_task();
        }
    }

    /// Keeps a pace that moves, for those who wait already: whoever comes later looks for himself.
    fn spawn_update_task(self: &Arc<Self>) {
        if !self.is_changing() || self.has_update_task.swap(true, Ordering::AcqRel) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return self.has_update_task.store(false, Ordering::Release);
        };
        let tracker = Arc::downgrade(self);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(UPDATE_INTERVAL).await;
                let Some(tracker) = tracker.upgrade() else { return };
                tracker.update_policy(tracker.clock.now());
                if !tracker.is_changing() {
                    tracker.has_update_task.store(false, Ordering::Release);
                    // It may have begun to move again before that could be seen.
                    return tracker.spawn_update_task();
                }
            }
        });
    }

    fn is_changing(&self) -> bool {
        self.send_rate.as_ref().is_some_and(|send_rate| send_rate.read().is_changing)
    }

    fn update_policy(&self, now: Time) {
        let Some(send_rate) = &self.send_rate else { return };
        let limiter = self.bucket.limiter();
        // Policies are set in the order of the changes.
        send_rate.change(|send_rate| match send_rate.policy(now) {
            Ok(policy) if policy != limiter.policy() => {
                if let Err(error) = limiter.reconfigure(policy, Change::KeepTokens) {
                    tracing::warn!(limit = limiter.limit().name(), %error, "the pace stays");
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(limit = limiter.limit().name(), %error, "the pace stays");
            }
        });
    }

    /// Takes one now, or tells when there is one again.
    pub(super) async fn take(&self) -> Result<Option<Retry>, StoreError> {
        Ok(self.bucket.limiter().take(self.bucket.key()).await?.retry())
    }

    /// Gives one back.
    pub(super) fn refund(&self) {
        let bucket = self.bucket.clone();
        self.bucket.store().detach(async move {
            let given = bucket.limiter().settle(bucket.key(), -1, None).await;
            if let Err(error) = given {
                tracing::warn!(limit = bucket.limiter().limit().name(), %error, "not given back");
            }
        });
    }

    /// A call was refused for this limit: until then at most, and until our bucket holds what it
    /// needs, unless the provider refuses it whatever that holds.
    pub(super) fn record_shortage(&self, needed: Option<u64>, until: Time) {
        self.record.record_shortage(Shortage { until, needed });
    }

    /// Closes the limit for a time, for everybody.
    pub(super) fn hold(&self, span: Duration, cause: HoldCause) {
        self.record.held(self.clock.now().after(span), cause);
        let bucket = self.bucket.clone();
        self.bucket.store().detach(async move {
            let held = bucket.limiter().hold(bucket.key(), span).await;
            if let Err(error) = held {
                tracing::warn!(limit = bucket.limiter().limit().name(), %error, "not held");
            }
        });
    }

    /// Whether it counts output.
    pub(super) const fn counts_output(&self, accounting: TokenAccounting) -> bool {
        matches!(self.kind.dimension(), Some(dimension) if accounting.counts_output(dimension))
    }

    /// Whether it counts requests of a day.
    pub(super) fn is_daily(&self) -> bool {
        self.kind.dimension() == Some(Dimension::RequestsPerDay)
    }

    /// Whether it counts requests of a short time.
    pub(super) fn counts_requests(&self) -> bool {
        self.kind == LimitKind::Dimension(Dimension::Requests)
    }

    /// Whether it counts what all keys of callers use together.
    pub(super) const fn is_over_all_keys(&self) -> bool {
        matches!(self.kind, LimitKind::AllKeys(_))
    }

    /// Whether it counts tokens, and not calls.
    pub(super) const fn counts_tokens(&self) -> bool {
        matches!(self.kind.dimension(), Some(dimension) if dimension.is_of_tokens())
    }
}
