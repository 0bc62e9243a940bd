//! Admission control for a service, in three tiers.
//!
//! 1. **Back-pressure**: while more requests are pending than the service can handle, every request
//!    is rejected. The check compares one atomic word: it takes no lock, allocates nothing and
//!    touches no bucket.
//! 2. **Client**: each client of an organization has a bucket, so that a misbehaving client harms
//!    only itself.
//! 3. **Organization**: all clients of an organization share a bucket, so that no organization
//!    harms another.
//!
//! Client and organization are charged together: a request that one tier rejects is not charged by
//! the other. Each tier is optional. The rules can be replaced atomically while requests are
//! served, and admission can be switched off and on.
//!
//! ```
//! use tidegate::Engine;
//! use tidegate::admission::{Admission, Caller, Rules, Tier};
//!
//! let admission = Admission::new(&Engine::new(), Rules::default())?;
//! let caller = Caller::new().organization("acme").client("alice");
//! for _ in 0..100 {
//!     assert!(admission.admit(caller).now()?.is_admitted());
//! }
//! let rejection = admission.admit(caller).now()?.rejected().unwrap();
//! assert_eq!((rejection.tier, rejection.id), (Tier::Client, Some("alice")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod active_rules;
mod admit;
mod caller;
mod decision;
mod hint;
mod pending;
mod reconfigure;
mod rules;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Correction, KeyBuf, Limit, Operation, PolicyChange, Settlement, StoreError};

pub use admit::Admit;
pub use caller::Caller;
pub use decision::{AdmissionDecision, AdmissionReceipt, AdmittedRequest, Rejection, Tier};
pub use pending::InFlight;
use rules::Mode;
pub use rules::{AdmissionError, Rules};

use crate::engine::Engine;
use crate::limiter::Limiter;
use crate::store_handle::StoreClock;

use active_rules::{ActiveRules, Shared};
use pending::Pending;

/// Admission control for a service. Cheap to clone; clones share everything.
///
/// The [module](self) documentation describes the three tiers.
#[derive(Clone)]
pub struct Admission {
    engine: Engine,
    shared: Arc<Shared>,
    /// Names of the limits of the client and the organization tier.
    names: Arc<[String; 2]>,
}

impl Admission {
    /// Creates an admission with these rules. Its limits are named `client` and `organization`.
    ///
    /// # Errors
    /// When a threshold is zero, a tier's policy is not a token bucket, or the engine already has a
    /// limit of that name with another policy.
    pub fn new(engine: &Engine, rules: Rules) -> Result<Self, AdmissionError> {
        Self::with_names(engine, rules, ["client".to_owned(), "organization".to_owned()])
    }

    /// Creates an admission next to others on one engine. Its limits are named `<name>.client` and
    /// `<name>.organization`.
    ///
    /// ```
    /// use tidegate::Engine;
    /// use tidegate::admission::{Admission, Caller, Rules};
    /// let engine = Engine::new();
    /// let reads = Admission::named(&engine, "reads", Rules::default())?;
    /// let writes = Admission::named(&engine, "writes", Rules::default().backpressure(20))?;
    /// # Ok::<(), tidegate::admission::AdmissionError>(())
    /// ```
    ///
    /// # Errors
    /// As for [`new`](Self::new), or when the name does not match `[a-z][a-z0-9_.-]*`.
    pub fn named(engine: &Engine, name: &str, rules: Rules) -> Result<Self, AdmissionError> {
        let names = ["client", "organization"].map(|tier| format!("{name}.{tier}"));
        Self::with_names(engine, rules, names)
    }

    fn with_names(
        engine: &Engine,
        rules: Rules,
        names: [String; 2],
    ) -> Result<Self, AdmissionError> {
        let clock = StoreClock::of(engine.store());
        let shared = Arc::new(Shared::new(Pending::new(clock)));
        let admission = Self { engine: engine.clone(), shared, names: Arc::new(names) };
        admission.reconfigure(rules, PolicyChange::default())?;
        Ok(admission)
    }

    /// Checks whether a caller is admitted.
    ///
    /// The tiers are checked in the order back-pressure, client, organization; a rejection names
    /// the first tier that rejects. An admitted request is pending until its [`AdmittedRequest`] is
    /// dropped.
    #[inline]
    pub fn admit<'a>(&'a self, caller: Caller<'a>) -> Admit<'a> {
        Admit { engine: &self.engine, shared: &self.shared, caller, wants_receipt: false }
    }

    /// Corrects what a caller was charged by `delta` tokens in every tier that charged it. A
    /// positive delta charges more, into debt if necessary; a negative one gives back. Pass the
    /// same caller, and the [receipt](AdmittedRequest::receipt) of its request. An in-process store
    /// answers in the first poll.
    ///
    /// ```
    /// use tidegate::Engine;
    /// use tidegate::admission::{Admission, Caller, Rules};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let admission = Admission::new(&Engine::new(), Rules::default())?;
    /// let caller = Caller::new().organization("acme").client("alice");
    /// let admitted = admission.admit(caller.cost(10)).with_receipt().await?.admitted().unwrap();
    /// let settled = admission.settle(caller, -8, &admitted.receipt().unwrap()).await?;
    /// assert_eq!((settled.outcomes[0].remaining, settled.outcomes[1].remaining), (98, 998));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the receipt does not belong to this caller, or the store cannot answer.
    pub async fn settle(
        &self,
        caller: Caller<'_>,
        delta: i64,
        receipt: &AdmissionReceipt,
    ) -> Result<Settlement, StoreError> {
        let active = self.shared.active.load_full();
        let client = caller.client_name(receipt.missing_client);
        let corrections = corrections(&active, &caller, client.as_deref(), delta, receipt);
        let receipt = Some(&receipt.receipt);
        self.engine.operation(Operation::Settle { corrections: &corrections, receipt }).await
    }

    /// Whether every request is admitted and rejections are only reported.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shared.active.load().rules.mode == Mode::Shadow
    }

    /// The rules in force.
    pub fn rules(&self) -> Rules {
        self.shared.active.load().rules.clone()
    }

    /// The engine that holds the limits.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Switches admission on. It is on from the start.
    pub fn enable(&self) {
        self.shared.enabled.store(true, Ordering::Relaxed);
    }

    /// Switches admission off: every request is admitted, and nothing is charged or counted. A
    /// check then costs one relaxed load.
    pub fn disable(&self) {
        self.shared.enabled.store(false, Ordering::Relaxed);
    }

    /// Whether admission is switched on.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.shared.enabled.load(Ordering::Relaxed)
    }

    /// Number of pending requests: those counted here, or the number last set with
    /// [`set_pending`](Self::set_pending) while it is valid, whichever is larger.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.shared.pending.now()
    }

    /// Sets the number of pending requests as counted elsewhere, for example the depth of a queue.
    /// It is valid for `good_for`, so that requests are not rejected because of a number whose
    /// source is gone.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Engine;
    /// use tidegate::admission::{Admission, Caller, Rules};
    /// let admission = Admission::new(&Engine::new(), Rules::default().backpressure(50))?;
    /// admission.set_pending(60, Duration::from_secs(5));
    /// let rejection = admission.admit(Caller::new()).now()?.rejected().unwrap();
    /// assert_eq!(rejection.tier.reason(), "queue_depth");
    /// assert_eq!(rejection.retry.after(), Some(Duration::from_millis(100)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_pending(&self, value: u32, good_for: Duration) {
        self.shared.pending.report(value, good_for);
    }

    /// Counts one more pending request until the returned guard is dropped, without a check. For
    /// work that does not come through [`admit`](Self::admit).
    pub fn track_request(&self) -> InFlight {
        InFlight::start(&self.shared.pending)
    }

    /// The limit of a tier; `None` for back-pressure and for a tier that has never been configured.
    #[must_use]
    pub fn limit(&self, tier: Tier) -> Option<Limit> {
        let active = self.shared.active.load();
        match tier {
            Tier::Backpressure => None,
            Tier::Client => active.client.clone(),
            Tier::Organization => active.organization.clone(),
        }
    }

    /// The limiter of a tier, to peek, hold or reset a [`key`](Self::key); `None` for back-pressure
    /// and for a tier that has never been configured.
    #[must_use]
    pub fn limiter(&self, tier: Tier) -> Option<Limiter> {
        let tiers = self.shared.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        let live_limit = match tier {
            Tier::Backpressure => None,
            Tier::Client => tiers.client.clone(),
            Tier::Organization => tiers.organization.clone(),
        };
        live_limit.map(|live_limit| Limiter::on(self.engine.clone(), live_limit))
    }

    /// The key of a caller's bucket in a tier, if it has one.
    ///
    /// ```
    /// use tidegate::Engine;
    /// use tidegate::admission::{Admission, Caller, Rules, Tier};
    /// let admission = Admission::new(&Engine::new(), Rules::default())?;
    /// let caller = Caller::new().organization("acme").client("alice");
    /// let _ = admission.admit(caller.cost(100)).now()?;
    /// let (limiter, key) =
    ///     admission.limiter(Tier::Client).zip(admission.key(Tier::Client, caller)).unwrap();
    /// assert!(limiter.reset(&key).now()?);
    /// assert!(admission.admit(caller).now()?.is_admitted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn key(&self, tier: Tier, caller: Caller<'_>) -> Option<KeyBuf> {
        let active = self.shared.active.load();
        let client = caller.client_name(active.rules.missing_client);
        let target = admit::target(&active, tier, &caller, client.as_deref())?;
        Some(target.key.into())
    }

    /// Number of requests that a tier has rejected.
    #[must_use]
    pub fn rejected_count(&self, tier: Tier) -> u64 {
        self.shared.rejected.of(tier)
    }

    /// Number of requests that a tier would have rejected without shadow mode.
    #[must_use]
    pub fn shadow_rejected_count(&self, tier: Tier) -> u64 {
        self.shared.shadowed.of(tier)
    }

    /// Number of requests admitted because of the allow-list.
    #[must_use]
    pub fn allow_listed_count(&self) -> u64 {
        self.shared.allowed.load(Ordering::Relaxed)
    }
}

/// Corrections for every tier that a receipt was charged in.
fn corrections<'c>(
    active: &'c ActiveRules,
    caller: &'c Caller<'_>,
    client: Option<&'c str>,
    delta: i64,
    receipt: &AdmissionReceipt,
) -> SmallVec<[Correction<'c>; 2]> {
    let tiers = receipt.charged.tiers().iter();
    tiers
        .filter_map(|tier| admit::target(active, *tier, caller, client))
        .map(|target| Correction { target, delta })
        .collect()
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("enabled", &self.is_enabled())
            .field("rules", &self.rules())
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}
