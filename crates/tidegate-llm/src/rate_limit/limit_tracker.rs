//! Tracks one limit of a scope: its bucket, its charges and its rate.

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
use tidegate::{Charge, Engine, LimitError, Policy, PolicyChange, Retry, StoreError};
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

/// Name under which waits for a minimum interval are reported.
pub(crate) const MIN_INTERVAL: &str = "min_interval";

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitKind {
    /// A dimension that the provider limits.
    Dimension(Dimension),
    /// A dimension over all callers' keys together.
    AllKeys(Dimension),
    /// Call starts, for a minimum interval.
    Starts,
    /// Nothing: a gate that can be held.
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

    /// Name under which waits for the limit are reported.
    pub(super) const fn wait_reason(self) -> &'static str {
        match self {
            Self::Dimension(dimension) => dimension.name(),
            Self::AllKeys(dimension) => of_all_keys(dimension),
            Self::Starts => MIN_INTERVAL,
            Self::Gate => "throttled",
        }
    }

    /// Returns the dimension; `None` if it is not one that providers limit.
    pub(super) const fn dimension(self) -> Option<Dimension> {
        match self {
            Self::Dimension(dimension) | Self::AllKeys(dimension) => Some(dimension),
            Self::Starts | Self::Gate => None,
        }
    }
}

/// Name of a limit over all callers' keys.
const fn of_all_keys(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Requests => "all_keys_requests",
        Dimension::RequestsPerDay => "all_keys_requests_per_day",
        _ => "all_keys_tokens",
    }
}

/// Specification of a tracker.
#[derive(Clone, Debug)]
pub(super) enum TrackerSpec {
    /// Refills continuously.
    Paced(LimitKind, SendRate),
    /// Refills at the end of the day.
    Daily(LimitKind, Daily),
}

impl TrackerSpec {
    pub(super) const fn kind(&self) -> LimitKind {
        match self {
            Self::Paced(kind, _) | Self::Daily(kind, _) => *kind,
        }
    }
}

/// How often a changing rate is applied to the bucket.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// Tracks one limit of a scope.
#[derive(Debug)]
pub(super) struct LimitTracker {
    kind: LimitKind,
    bucket: Bucket,
    /// `None` if it refills by the calendar.
    send_rate: Option<SendRateCell>,
    /// Net charges so far.
    charged: AtomicI64,
    /// Largest recent charge; decays.
    largest: AtomicU64,
    recent: Mutex<RecentCharges>,
    reports: Mutex<ReportTrust>,
    /// Held while a report corrects the bucket.
    correcting: Mutex<()>,
    /// State kept for views only.
    record: LimitRecord,
    /// When the bucket was last compared with a report, in nanoseconds.
    last_compared: AtomicU64,
    is_shared: bool,
    /// Whether a task applies the changing rate.
    has_update_task: AtomicBool,
    clock: TokioClock,
}

/// Total charges when a call was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChargeMark {
    /// Including the call itself.
    charged: i64,
    /// Excluding it and calls sent just before it, which may arrive later.
    before: i64,
}

/// Charges of the current and the previous reordering span.
#[derive(Clone, Copy, Debug, Default)]
struct RecentCharges {
    since: Time,
    current: i64,
    before: i64,
}

impl RecentCharges {
    /// Adds a charge and returns the recent total.
    fn add(&mut self, cost: i64, now: Time) -> i64 {
        let elapsed = now.since(self.since);
        if elapsed >= REORDERING {
            let before = if elapsed < REORDERING * 2 { self.current } else { 0 };
            *self = Self { since: now, current: 0, before };
        }
        self.current = self.current.saturating_add(cost);
        self.current.saturating_add(self.before)
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

    /// Applies a new limit. Charges are kept, and a daily limit keeps its time zone.
    pub(super) fn set(self: &Arc<Self>, spec: &TrackerSpec, now: Time) -> Result<(), LimitError> {
        match spec {
            TrackerSpec::Paced(_, send_rate) => {
                self.with_send_rate(now, |current| *current = send_rate.clone());
            }
            TrackerSpec::Daily(_, daily) => {
                let policy = Policy::quota(daily.requests().get().into())?;
                self.bucket.limiter().reconfigure(policy, PolicyChange::KeepTokens)?;
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
            correcting: Mutex::default(),
            record: LimitRecord::default(),
            last_compared: AtomicU64::new(0),
            is_shared: bucket.store().local().is_none(),
            has_update_task: AtomicBool::new(false),
            clock,
            bucket,
        }
    }

    pub(super) const fn kind(&self) -> LimitKind {
        self.kind
    }

    /// Name of the limit in the engine.
    pub(super) fn name(&self) -> String {
        self.bucket.limiter().limit().name().to_owned()
    }

    /// Allowed amount, if known.
    pub(super) fn allowed(&self) -> Option<Allowed> {
        self.send_rate.as_ref().and_then(|send_rate| send_rate.read().allowed)
    }

    /// Returns net charges; `None` if it is not a dimension of this key.
    pub(super) fn charged(&self) -> Option<(Dimension, u64)> {
        let LimitKind::Dimension(dimension) = self.kind else { return None };
        let charged = self.charged.load(Ordering::Relaxed);
        Some((dimension, u64::try_from(charged).unwrap_or(0)))
    }

    /// Returns the charge of a call.
    pub(super) fn cost(&self, accounting: TokenAccounting, amounts: Amounts) -> u64 {
        match self.kind.dimension() {
            Some(dimension) => accounting.cost(dimension, amounts),
            None => 1,
        }
    }

    /// Returns the charge to reserve for a call. A provider never admits more than its limit per
    /// minute, so output beyond that is not reserved and does not delay other calls. Input is
    /// charged in full.
    pub(super) fn reserve(&self, accounting: TokenAccounting, amounts: Amounts) -> u64 {
        let cost = self.cost(accounting, amounts);
        let input = self.cost(accounting, Amounts { output: 0, ..amounts });
        match self.max_admitted() {
            _ if !self.counts_tokens() => cost,
            Some(max) => cost.min(max.max(input)),
            // An unknown limit must not delay calls, whatever their `max_tokens`.
            None => cost.min(MAX_UNKNOWN_COST),
        }
    }

    /// Returns what to keep of the charge of a call that may or may not have been admitted: at most
    /// what the provider would have admitted.
    pub(super) fn admitted(&self, cost: u64) -> u64 {
        let max = self.max_admitted().filter(|_| self.counts_tokens());
        max.map_or(cost, |max| cost.min(max))
    }

    /// Maximum admitted per minute, or at once if that is more.
    fn max_admitted(&self) -> Option<u64> {
        let allowed = self.allowed()?;
        Some(allowed.in_span(Duration::from_secs(60)).max(allowed.amount))
    }

    /// Returns how long a charge of `cost` would wait if the queue were empty.
    pub(super) async fn delay(&self, cost: u64) -> Option<Duration> {
        let limiter = self.bucket.limiter();
        let cost = cost.min(limiter.policy().capacity());
        let decision = limiter.peek(self.bucket.key()).cost(cost).await.ok()?;
        decision.retry()?.after()
    }

    /// Returns a charge at the current rate for a call that is expected to cost `expected` finally.
    pub(super) fn claim(&self, cost: u64, expected: u64, now: Time) -> Charge<'_> {
        if self.is_changing() {
            self.update_policy(now);
        }
        self.bucket.charge(cost).expected(expected)
    }

    /// Largest recent charge; decays.
    pub(super) fn largest(&self) -> u64 {
        self.largest.load(Ordering::Relaxed)
    }

    /// Records a granted charge.
    pub(super) fn charge(&self, cost: u64, now: Time) -> ChargeMark {
        self.record.record_charge(cost, now);
        let cost = i64::try_from(cost).unwrap_or(i64::MAX);
        // It decays, so that one huge call does not determine it forever.
        let largest = self.largest.load(Ordering::Relaxed);
        let decayed = (largest - largest / 32).max(cost.unsigned_abs());
        self.largest.store(decayed, Ordering::Relaxed);
        let charged = self.charged.fetch_add(cost, Ordering::Relaxed).saturating_add(cost);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        ChargeMark { charged, before: charged.saturating_sub(recent.add(cost, now)) }
    }

    /// Returns recent charges that a report received now may not include.
    fn in_transit(&self, now: Time) -> u64 {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        u64::try_from(recent.add(0, now)).unwrap_or(0)
    }

    /// Records the final charge of a call.
    pub(super) fn record_final_cost(&self, from: u64, to: u64, now: Time) {
        self.record.record_end(from, to, now);
        let delta = i128::from(to) - i128::from(from);
        self.charged.fetch_add(i64::try_from(delta).unwrap_or(0), Ordering::Relaxed);
    }

    /// Removes the limit: calls no longer wait for it.
    pub(super) fn retire(self: &Arc<Self>, now: Time) {
        self.with_send_rate(now, |send_rate| *send_rate = SendRate::unlimited());
    }

    /// Changes the rate and updates the policy of the bucket.
    pub(super) fn with_send_rate(self: &Arc<Self>, now: Time, change: impl FnOnce(&mut SendRate)) {
        if let Some(send_rate) = &self.send_rate {
            send_rate.change(change);
            self.update_policy(now);
            self.spawn_update_task();
        }
    }

    /// Spawns a task that applies a changing rate for calls that already wait; new calls apply it
    /// themselves.
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
                    // The rate may have started to change again meanwhile.
                    return tracker.spawn_update_task();
                }
            }
        });
    }

    fn is_changing(&self) -> bool {
        self.send_rate.as_ref().is_some_and(|send_rate| send_rate.read().is_changing)
    }

    /// Sets the allowed amount and the policy of the bucket. Returns whether it was unknown before.
    fn learn(&self, allowed: Allowed, now: Time) -> bool {
        let Some(send_rate) = self.send_rate.as_ref().filter(|it| !it.is_known(allowed)) else {
            return false;
        };
        // In one step: whoever sees the amount also sees a bucket of that size.
        send_rate.change(|send_rate| {
            let is_first = send_rate.allowed().is_none();
            if send_rate.allow(allowed) {
                self.apply_policy(send_rate, now);
            }
            is_first
        })
    }

    fn update_policy(&self, now: Time) {
        if let Some(send_rate) = &self.send_rate {
            // Under the lock, so that policies are set in the order of the changes.
            send_rate.change(|send_rate| self.apply_policy(send_rate, now));
        }
    }

    fn apply_policy(&self, send_rate: &mut SendRate, now: Time) {
        let limiter = self.bucket.limiter();
        let applied = match send_rate.policy(now) {
            Ok(policy) if policy == limiter.policy() => Ok(()),
            Ok(policy) => limiter.reconfigure(policy, PolicyChange::KeepTokens).map(drop),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = applied {
            tracing::warn!(
                limit = limiter.limit().name(),
                %error,
                "rate update failed; keeping the previous rate"
            );
        }
    }

    /// Takes one token, or returns when to retry.
    pub(super) async fn take(&self) -> Result<Option<Retry>, StoreError> {
        Ok(self.bucket.limiter().take(self.bucket.key()).await?.retry())
    }

    /// Refunds one token.
    pub(super) fn refund(&self) {
        let bucket = self.bucket.clone();
        self.bucket.store().detach(async move {
            let refunded = bucket.limiter().settle(bucket.key(), -1, None).await;
            if let Err(error) = refunded {
                tracing::warn!(limit = bucket.limiter().limit().name(), %error, "refund failed");
            }
        });
    }

    /// Records that a call was refused for this limit: until `until` at most, and until our bucket
    /// holds `needed`, unless the provider itself refused it.
    pub(super) fn record_shortage(&self, needed: Option<u64>, until: Time) {
        self.record.record_shortage(Shortage { until, needed });
    }

    /// Holds the limit for all callers.
    pub(super) fn hold(&self, span: Duration, cause: HoldCause) {
        self.record.record_hold(self.clock.now().after(span), cause);
        let bucket = self.bucket.clone();
        self.bucket.store().detach(async move {
            let held = bucket.limiter().hold(bucket.key(), span).await;
            if let Err(error) = held {
                tracing::warn!(limit = bucket.limiter().limit().name(), %error, "hold failed");
            }
        });
    }

    /// Returns whether the limit counts output.
    pub(super) const fn counts_output(&self, accounting: TokenAccounting) -> bool {
        matches!(self.kind.dimension(), Some(dimension) if accounting.counts_output(dimension))
    }

    /// Returns whether the limit counts requests per day.
    pub(super) fn is_daily(&self) -> bool {
        self.kind.dimension() == Some(Dimension::RequestsPerDay)
    }

    /// Returns whether the limit counts requests of one key over a short window.
    pub(super) fn counts_requests(&self) -> bool {
        self.kind == LimitKind::Dimension(Dimension::Requests)
    }

    /// Returns whether the limit is over all callers' keys.
    pub(super) const fn is_over_all_keys(&self) -> bool {
        matches!(self.kind, LimitKind::AllKeys(_))
    }

    /// Returns whether the limit counts tokens rather than calls.
    pub(super) const fn counts_tokens(&self) -> bool {
        matches!(self.kind.dimension(), Some(dimension) if dimension.counts_tokens())
    }
}
