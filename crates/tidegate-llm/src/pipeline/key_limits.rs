//! The limits of one key, under the constraint that its newest command came with.
//!
//! A key has one bucket per dimension. A command with another constraint changes the policies of
//! these buckets; it neither opens new ones nor refills them. So while its limits are cached, a key
//! gets at most the largest burst plus the highest rate of its constraints, in whatever order they
//! come. See [`limiter_cache`](super::limiter_cache) for keys that are evicted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::pacer::{Acquire, AcquireError, Pacer, WaitPart};
use tidegate::{
    Engine, KeyBuf, LimitError, Limiter, MemoryStore, Policy, PolicyChange, PolicyError, Schedule,
};
use tidegate_core::Time;
use tidegate_providers::{Dimension, Usage};

use crate::plan::{Constraint, Plan};
use crate::rate_limit::{MIN_INTERVAL, limit_name};

/// Maximum debt of a token bucket. No call uses more tokens, and even at one token per minute it
/// can be paid back.
const MAX_DEBT: u64 = 10_000_000;

/// The limits of one key.
#[derive(Debug)]
pub(super) struct KeyLimits {
    key: KeyBuf,
    /// Text of the first constraint. It is part of the names of the limits, so that a key whose
    /// limits were evicted finds its buckets again if it comes back with the same constraint.
    origin: String,
    /// An engine of its own, so that the names are freed with it.
    engine: Engine,
    pacer: Pacer,
    state: Mutex<State>,
    /// When a command last got its permit, in nanoseconds of the store's clock.
    last_grant: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Constraint of the newest command.
    constraint: Option<Constraint>,
    /// All limits so far. A limit that the newest constraint does not have keeps its state.
    limits: Vec<KeyLimit>,
    /// The daily quota last in force.
    day: Option<usize>,
    /// Longest time in which one of the buckets refills, under any constraint so far.
    longest_refill: Duration,
}

#[derive(Debug)]
struct KeyLimit {
    /// What is limited, unique in this key.
    what: String,
    counted: Counted,
    limiter: Limiter,
    /// Whether the newest constraint has this limit.
    is_active: bool,
}

/// A limit as a constraint describes it.
struct WantedLimit<'c> {
    what: String,
    counted: Counted,
    policy: Result<Policy, PolicyError>,
    /// Windows of a calendar quota.
    schedule: Option<&'c Schedule>,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug)]
enum Counted {
    Dimension(Dimension),
    /// Starts of requests, at the minimum interval.
    Starts,
    Nothing,
}

impl Counted {
    fn counts_tokens(self) -> bool {
        matches!(self, Self::Dimension(dimension) if dimension.counts_tokens())
    }

    /// Returns the name under which waits for the limit are reported.
    const fn wait_reason(self) -> &'static str {
        match self {
            Self::Dimension(dimension) => dimension.name(),
            Self::Starts => MIN_INTERVAL,
            Self::Nothing => WaitPart::CONCURRENCY,
        }
    }

    /// Returns what a call with this usage has to be charged.
    fn used(self, usage: &Usage) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Starts | Self::Dimension(Dimension::Requests | Dimension::RequestsPerDay) => 1,
            Self::Dimension(Dimension::Tokens) => usage.total(),
            Self::Dimension(Dimension::InputTokens) => usage.input,
            Self::Dimension(Dimension::OutputTokens) => usage.output,
        }
    }

    /// Returns what a command with this plan is charged before its call.
    fn reserved(self, plan: &Plan) -> u64 {
        match self {
            // A charge above the maximum debt would be rejected, and its command not limited.
            Self::Dimension(dimension) if dimension.counts_tokens() => {
                plan.reserved(dimension).min(MAX_DEBT)
            }
            Self::Nothing => 0,
            Self::Starts | Self::Dimension(_) => 1,
        }
    }
}

/// What a command is charged to, in the order of its charges.
#[derive(Clone, Debug)]
pub(super) struct Charged(Vec<ChargedLimit>);

#[derive(Clone, Debug)]
struct ChargedLimit {
    name: Arc<str>,
    counted: Counted,
    cost: u64,
}

impl Charged {
    /// Returns what each limit has to be charged for this usage.
    pub(super) fn used(&self, usage: &Usage) -> Vec<u64> {
        self.0.iter().map(|limit| limit.counted.used(usage)).collect()
    }

    /// Returns the number of charges.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns why a command waited for the limit with this name: a dimension, `min_interval` or
    /// `concurrency`.
    pub(super) fn wait_reason(&self, limit: &str) -> &'static str {
        self.counted(limit).wait_reason()
    }

    /// Returns whether the limit with this name counts tokens.
    pub(super) fn counts_tokens(&self, limit: &str) -> bool {
        self.counted(limit).counts_tokens()
    }

    fn counted(&self, limit: &str) -> Counted {
        let found = self.0.iter().find(|charged| *charged.name == *limit);
        found.map_or(Counted::Nothing, |charged| charged.counted)
    }
}

impl KeyLimits {
    /// Creates the limits of a key whose first command comes with `constraint`.
    pub(super) fn new(store: &Arc<MemoryStore>, key: KeyBuf, constraint: &Constraint) -> Self {
        let engine = Engine::on(store.clone());
        let pacer = Pacer::builder(&engine).max_waiting(usize::MAX).build();
        let (origin, state, last_grant) =
            (constraint.to_string(), Mutex::default(), AtomicU64::default());
        Self { key, origin, engine, pacer, state, last_grant }
    }

    /// Requests a permit for a command with this plan, and applies its constraint to the key.
    pub(super) fn acquire(&self, constraint: &Constraint, plan: &Plan) -> (Acquire, Charged) {
        let mut state = self.lock();
        if state.constraint.as_ref() != Some(constraint) {
            self.change(&mut state, constraint);
        }
        let mut active: Vec<_> = state.limits.iter().filter(|limit| limit.is_active).collect();
        // Of a wait for both, the part for requests is what goes beyond the tokens (R97).
        active.sort_by_key(|limit| !limit.counted.counts_tokens());
        let charged = active.iter().map(|limit| ChargedLimit {
            name: limit.limiter.limit().shared_identity(),
            counted: limit.counted,
            cost: limit.counted.reserved(plan),
        });
        let charged: Vec<_> = charged.collect();
        let priced = active.iter().zip(&charged);
        let charges = priced.map(|(limit, charged)| limit.limiter.charge(&self.key, charged.cost));
        let acquire = self.pacer.acquire(charges.collect::<Vec<_>>()).into_debt();
        (acquire, Charged(charged))
    }

    /// Returns what a command with these charges got no permit for, and for how long, if known.
    pub(super) fn shortage(
        &self,
        charged: &Charged,
        error: &AcquireError,
    ) -> Option<(&'static str, Option<Duration>)> {
        let limits = &self.lock().limits;
        let delays = charged.0.iter().filter_map(|charged| {
            let mut known = limits.iter();
            let limit = known.find(|limit| limit.limiter.limit().identity() == &*charged.name)?;
            Some((charged.counted.wait_reason(), Some(limit.delay(&self.key, charged.cost)?)))
        });
        let slot = self.pacer.gauges().is_full.then_some((WaitPart::CONCURRENCY, None));
        // How long a slot takes is not known, so it is never the reason for a refusal at once.
        match error {
            AcquireError::TooLong { .. } => delays.max_by_key(|(_, delay)| *delay).or(slot),
            _ => slot.or_else(|| delays.max_by_key(|(_, delay)| *delay)),
        }
    }

    pub(super) const fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    /// Records that a command got its permit.
    pub(super) fn granted(&self, now: Time) {
        self.last_grant.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// Returns whether nothing is lost without it: all buckets are full, and would be under any
    /// constraint that the key came with. Only valid while no command of the key waits or has a
    /// permit.
    pub(super) fn is_forgettable(&self, now: Time) -> bool {
        let state = self.lock();
        let granted = Time::from_nanos(self.last_grant.load(Ordering::Relaxed));
        now.since(granted) >= state.longest_refill
            && state.limits.iter().all(|limit| limit.is_full(&self.key))
    }

    /// Frees what the store remembers of the policies.
    pub(super) fn forget(&self, store: &MemoryStore) {
        self.lock().limits.iter().for_each(|limit| store.forget_limit(&limit.limiter.limit()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `constraint` the policy of all buckets.
    fn change(&self, state: &mut State, constraint: &Constraint) {
        state.limits.iter_mut().for_each(|limit| limit.is_active = false);
        for wanted in wanted_limits(constraint) {
            match self.activate(state, &wanted) {
                Ok(index) => {
                    if wanted.schedule.is_some()
                        && let Some(before) = state.day.replace(index)
                    {
                        self.carry_usage(&state.limits[before], &state.limits[index]);
                    }
                    let refill = state.limits[index].refill_time();
                    state.longest_refill = state.longest_refill.max(refill);
                }
                // This does not happen with a valid constraint.
                Err(error) => {
                    let what = wanted.what;
                    tracing::warn!(what, %error, "limiter creation failed; limit not enforced");
                }
            }
        }
        self.pacer.set_concurrency(constraint.concurrency().map(|limit| limit.get().into()));
        self.pacer.nudge();
        state.constraint = Some(constraint.clone());
    }

    /// Gives the limit its policy, and creates it if the key does not have it yet. Returns its
    /// index.
    fn activate(&self, state: &mut State, wanted: &WantedLimit<'_>) -> Result<usize, LimitError> {
        let policy = wanted.policy?;
        let known = state.limits.iter().position(|limit| limit.what == wanted.what);
        let index = match known {
            Some(index) => {
                state.limits[index].keep_tokens(&self.key, policy)?;
                index
            }
            None => {
                state.limits.push(self.create(wanted, policy)?);
                state.limits.len() - 1
            }
        };
        state.limits[index].is_active = true;
        Ok(index)
    }

    fn create(&self, wanted: &WantedLimit<'_>, policy: Policy) -> Result<KeyLimit, LimitError> {
        let WantedLimit { what, counted, schedule, .. } = wanted;
        let scope = [self.key.as_key().name(), &self.origin, what].join("\n");
        let name = limit_name("plan", &scope);
        let limiter = match schedule {
            Some(schedule) => {
                self.engine.calendar(&name, policy.capacity(), Schedule::clone(schedule))?
            }
            None => self.engine.limiter(&name, policy)?,
        };
        Ok(KeyLimit { what: what.clone(), counted: *counted, limiter, is_active: false })
    }

    /// Charges a daily quota with what was used of the one before, if that is more: a constraint in
    /// another time zone starts no new day.
    fn carry_usage(&self, before: &KeyLimit, after: &KeyLimit) {
        let excess = before.used(&self.key).saturating_sub(after.used(&self.key));
        if let Ok(excess @ 1..) = i64::try_from(excess) {
            after.settle(&self.key, excess);
        }
    }
}

impl KeyLimit {
    /// Changes the policy and keeps the tokens, also those of a full bucket: it would otherwise be
    /// full under the new policy too, and a key could refill a large slow bucket by a small fast
    /// one.
    fn keep_tokens(&self, key: &KeyBuf, policy: Policy) -> Result<(), LimitError> {
        if self.limiter.policy() == policy {
            return Ok(());
        }
        // One token less is not full, and the other tokens are kept exactly.
        let is_bucket = matches!(policy, Policy::Bucket(_));
        let taken = if is_bucket { self.settle(key, 1) } else { 0 };
        let changed = self.limiter.reconfigure(policy, PolicyChange::KeepTokens);
        self.settle(key, -taken);
        changed
    }

    /// Charges the bucket, or refunds it, whatever it contains. Returns the tokens charged.
    fn settle(&self, key: &KeyBuf, tokens: i64) -> i64 {
        if tokens == 0 {
            return 0;
        }
        // The in-process store has no failures for a valid key.
        let settlement = self.limiter.settle(key, tokens, None).now();
        settlement.ok().and_then(|settlement| settlement.applied.first().copied()).unwrap_or(0)
    }

    /// Returns how long a charge would wait; `None` if it would not.
    fn delay(&self, key: &KeyBuf, cost: u64) -> Option<Duration> {
        let cost = cost.min(self.limiter.policy().capacity());
        self.limiter.peek(key).cost(cost).now().ok()?.retry()?.after()
    }

    fn is_full(&self, key: &KeyBuf) -> bool {
        let Ok(decision) = self.limiter.peek(key).cost(0).now() else { return false };
        decision.outcomes().iter().all(|outcome| match self.limiter.policy() {
            Policy::Bucket(_) => outcome.reset.is_none_or(|reset| reset.is_zero()),
            _ => outcome.remaining == outcome.capacity,
        })
    }

    /// Returns the amount used of a quota.
    fn used(&self, key: &KeyBuf) -> u64 {
        let decision = self.limiter.peek(key).cost(0).now();
        decision.map_or(0, |decision| self.limiter.policy().capacity() - decision.remaining())
    }

    /// Returns the time in which the bucket refills; zero for a quota, which does not.
    fn refill_time(&self) -> Duration {
        match self.limiter.policy() {
            Policy::Bucket(bucket) => Duration::from_nanos(bucket.time_to_full().ceil()),
            _ => Duration::ZERO,
        }
    }
}

/// Returns the limits of a constraint, at least one. Concurrency is counted by the pacer.
fn wanted_limits(constraint: &Constraint) -> Vec<WantedLimit<'_>> {
    let mut wanted = Vec::new();
    let mut add = |what: String, counted, policy, schedule| {
        wanted.push(WantedLimit { what, counted, policy, schedule });
    };
    for dimension in Dimension::ALL {
        let Some(rate) = constraint.rate(dimension) else { continue };
        let policy = match dimension.counts_tokens() {
            true => Policy::rate(rate).max_debt(MAX_DEBT),
            false => Policy::rate(rate).capacity(constraint.burst()),
        };
        add(dimension.name().to_owned(), Counted::Dimension(dimension), policy.build(), None);
    }
    let interval = constraint.min_interval();
    if !interval.is_zero() {
        let policy = Policy::per(1, interval).capacity(1).build();
        add("starts".to_owned(), Counted::Starts, policy, None);
    }
    if let Some(daily) = constraint.daily() {
        let (zone, policy) = (daily.zone(), Policy::quota(daily.requests().get().into()));
        let what = format!("day in {zone}");
        let counted = Counted::Dimension(Dimension::RequestsPerDay);
        add(what, counted, policy, Some(daily.schedule()));
    }
    if wanted.is_empty() {
        // A pacer grants charges, even if there are only slots to wait for. This one is of no
        // tokens, so it never waits.
        let (what, policy) = ("slots".to_owned(), Policy::per_second(1).build());
        wanted.push(WantedLimit { what, counted: Counted::Nothing, policy, schedule: None });
    }
    wanted
}
