//! Ceiling over the keys of all callers at one provider.
//!
//! Configured limits apply to each key. A caller with many keys would have as many limits, so there
//! is a ceiling over all of them. Every account of a caller's key is charged to it together with
//! its own limits, all or nothing.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tidegate::clock::{Clock as _, TokioClock};
use tidegate::{Engine, LimitError};
use tidegate_providers::{Dimension, Provider};
use tokio::time::Instant;

use super::call_queue::INLINE;
use super::limit_tracker::view::ViewContext;
use super::limit_tracker::{LimitKind, LimitTracker, TrackerSpec};
use super::limit_view::{LimitSource, LimitView};
use super::limits::AccountLimits;
use super::send_rate::{Allowed, Burst, SendRate};
use crate::plan::{Constraint, Daily};

/// Default ceiling over all callers' keys, as a multiple of the limits of one key.
pub const ALL_KEYS_MULTIPLE: u32 = 16;

/// Limits of a ceiling. Separate limits on input and output tokens have no ceiling, since a call
/// can be charged to at most 16 limits.
#[derive(Debug)]
struct AllKeysLimits {
    requests: Option<NonZeroU32>,
    /// Maximum number of requests sent at once.
    burst: u64,
    tokens: Option<NonZeroU32>,
    daily: Option<Daily>,
}

impl AllKeysLimits {
    /// Takes the configured ceiling, else [`ALL_KEYS_MULTIPLE`] times the limits of one key.
    fn of(limits: &AccountLimits) -> Self {
        let (requests_per_minute, tokens_per_minute) = limits.all_keys;
        let of_key = limits.account_limit().map(|(constraint, _)| constraint);
        let times = |amount: Option<NonZeroU32>| amount.map(multiple);
        let requests_of_key = of_key.and_then(Constraint::requests_per_minute);
        let requests = requests_per_minute.or_else(|| times(requests_of_key));
        let burst = match (of_key, requests_of_key, requests) {
            // Same proportion as for one key, so that as many keys can start at once.
            (Some(of_key), Some(one), Some(all)) => {
                let burst = u128::from(of_key.burst()) * u128::from(all.get());
                u64::try_from(burst / u128::from(one.get())).unwrap_or(u64::MAX)
            }
            (_, _, all) => all.map_or(1, |all| u64::from(all.get()) / 60),
        };
        Self {
            requests,
            burst: burst.max(1),
            tokens: tokens_per_minute
                .or_else(|| times(of_key.and_then(Constraint::tokens_per_minute))),
            daily: of_key
                .and_then(Constraint::daily)
                .map(|daily| daily.clone().with_requests(multiple(daily.requests()))),
        }
    }

    fn specs(&self) -> impl Iterator<Item = TrackerSpec> {
        let rates = [
            (Dimension::Requests, self.requests, Burst::Amount(self.burst)),
            (Dimension::Tokens, self.tokens, Burst::Window),
        ];
        let rates = rates.into_iter().filter_map(|(dimension, amount, burst)| {
            let allowed = Allowed::per_minute(amount?.get().into());
            Some(TrackerSpec::Paced(
                LimitKind::AllKeys(dimension),
                SendRate::new(Some(allowed), burst, 0),
            ))
        });
        let day = LimitKind::AllKeys(Dimension::RequestsPerDay);
        rates.chain(self.daily.clone().map(|daily| TrackerSpec::Daily(day, daily)))
    }
}

fn multiple(amount: NonZeroU32) -> NonZeroU32 {
    amount.saturating_mul(const { NonZeroU32::new(ALL_KEYS_MULTIPLE).unwrap() })
}

/// Ceiling over all callers' keys, as set by [`AccountLimits::all_keys`]. Cheap to clone; clones
/// share the ceiling.
#[derive(Clone, Debug)]
pub(super) struct AllKeys(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    scope: String,
    clock: TokioClock,
    in_force: ArcSwap<InForce>,
    /// All trackers ever created, so that charges are kept if a limit is configured again.
    known: Mutex<Vec<Arc<LimitTracker>>>,
}

/// Limits that calls are charged to.
#[derive(Debug, Default)]
struct InForce {
    trackers: Vec<Arc<LimitTracker>>,
    daily: Option<Arc<LimitTracker>>,
}

impl AllKeys {
    /// Creates the ceiling of `provider`. Accounts under it must be on the same engine.
    ///
    /// # Errors
    /// If a limit is invalid.
    pub(super) fn new(
        provider: &Provider,
        engine: &Engine,
        limits: &AccountLimits,
    ) -> Result<Self, LimitError> {
        let all_keys = Self(Arc::new(Inner {
            engine: engine.clone(),
            scope: format!("{provider} all keys"),
            clock: TokioClock::new(),
            in_force: ArcSwap::default(),
            known: Mutex::default(),
        }));
        all_keys.configure(limits)?;
        Ok(all_keys)
    }

    /// Changes the limits. Charges are kept, and waiting calls follow the new limits at once.
    ///
    /// # Errors
    /// If a limit is invalid.
    pub(super) fn configure(&self, limits: &AccountLimits) -> Result<(), LimitError> {
        let Inner { engine, scope, clock, in_force, known } = &*self.0;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = InForce::default();
        for spec in AllKeysLimits::of(limits).specs() {
            let same = |tracker: &&Arc<LimitTracker>| tracker.kind() == spec.kind();
            let tracker = match known.iter().find(same) {
                Some(tracker) => {
                    tracker.set(&spec, clock.now())?;
                    tracker.clone()
                }
                None => {
                    let tracker = Arc::new(LimitTracker::new(engine, scope, spec, *clock)?);
                    known.push(tracker.clone());
                    tracker
                }
            };
            match tracker.is_daily() {
                true => next.daily = Some(tracker),
                false => next.trackers.push(tracker),
            }
        }
        let is_used = |tracker: &&Arc<LimitTracker>| {
            next.trackers.iter().any(|used| Arc::ptr_eq(used, tracker))
        };
        // Calls must not wait for removed limits.
        known
            .iter()
            .filter(|tracker| !is_used(tracker))
            .for_each(|tracker| tracker.retire(clock.now()));
        in_force.store(Arc::new(next));
        Ok(())
    }

    /// Adds the limits that every call is charged to, apart from the daily one.
    pub(super) fn add_to(&self, trackers: &mut SmallVec<[Arc<LimitTracker>; INLINE]>) {
        trackers.extend(self.0.in_force.load().trackers.iter().cloned());
    }

    /// Returns the daily request limit, if there is one.
    pub(super) fn daily(&self) -> Option<Arc<LimitTracker>> {
        self.0.in_force.load().daily.clone()
    }

    /// Returns the reported wait reason if `limit` is one of these limits.
    pub(super) fn name_of(&self, limit: &str) -> Option<&'static str> {
        let in_force = self.0.in_force.load();
        let tracker = in_force.trackers.iter().find(|tracker| tracker.name() == limit)?;
        Some(tracker.kind().wait_reason())
    }

    /// Returns a view of each limit.
    pub(super) async fn inspect(&self) -> Vec<LimitView> {
        let now = self.0.clock.now();
        let context = ViewContext { waits_for: None, now, until: Instant::now() };
        let in_force = self.0.in_force.load_full();
        let mut views = Vec::new();
        for tracker in in_force.trackers.iter().chain(&in_force.daily) {
            views.extend(tracker.view(LimitSource::Configured, &context).await);
        }
        views
    }
}
