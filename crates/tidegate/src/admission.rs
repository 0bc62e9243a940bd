//! Admission: what a service lets in, in three tiers.
//!
//! 1. **Back-pressure**: while more is pending than the service can bear, nobody gets in. What is
//!    pending is one atomic load, and no bucket is touched.
//! 2. **Client**: each client of an organization has a bucket, so that one that misbehaves harms
//!    itself only.
//! 3. **Organization**: all clients of an organization share a bucket, so that no organization
//!    harms another.
//!
//! Client and organization are charged together: who is rejected by one is not charged by the
//! other. Any of the three can be left out. The rules change while requests are served, whole;
//! a switch turns all of it off and on.
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

mod admit;
mod caller;
mod hint;
mod live;
mod pending;
mod reconfigure;
mod rules;
mod verdict;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Change, Correction, KeyBuf, Limit, Operation, Settlement, StoreError};

pub use admit::Admit;
pub use caller::Caller;
pub use pending::InFlight;
use rules::Mode;
pub use rules::{AdmissionError, Rules};
pub use verdict::{Bill, Pass, Rejection, Tier, Verdict};

use crate::engine::Engine;
use crate::limiter::Limiter;
use crate::store_handle::StoreClock;

use live::{Live, Shared};
use pending::Pending;

/// Three tiers at the door of a service. Cheap to clone; clones share everything.
///
/// See the [module](self) for what the tiers are.
#[derive(Clone)]
pub struct Admission {
    engine: Engine,
    shared: Arc<Shared>,
    /// The names of the limits of client and organization tier.
    names: Arc<[String; 2]>,
}

impl Admission {
    /// An admission with these rules. Its limits are named `client` and `organization`.
    ///
    /// # Errors
    /// When a threshold is zero, a tier has no token bucket, or the engine has a limit of that
    /// name with another policy.
    pub fn new(engine: &Engine, rules: Rules) -> Result<Self, AdmissionError> {
        Self::with_names(engine, rules, ["client".to_owned(), "organization".to_owned()])
    }

    /// An admission beside others on one engine: its limits are named `<name>.client` and
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
    /// As for [`new`](Self::new), or when the name is not `[a-z][a-z0-9_.-]*`.
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
        admission.reconfigure(rules, Change::default())?;
        Ok(admission)
    }

    /// Asks whether a caller gets in.
    ///
    /// The order is back-pressure, client, organization: a rejection names the first of them that
    /// rejects. Whoever gets in is pending until its pass is dropped.
    #[inline]
    pub fn admit<'a>(&'a self, caller: Caller<'a>) -> Admit<'a> {
        Admit { engine: &self.engine, shared: &self.shared, caller, billed: false }
    }

    /// Corrects what a caller was charged by `delta` tokens in every tier that charged it:
    /// positive charges more, into debt if need be, negative gives back. It takes the same caller
    /// and the [bill](Pass::bill) of its pass. A store in this process answers in the first poll.
    ///
    /// ```
    /// use tidegate::Engine;
    /// use tidegate::admission::{Admission, Caller, Rules};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let admission = Admission::new(&Engine::new(), Rules::default())?;
    /// let caller = Caller::new().organization("acme").client("alice");
    /// let pass = admission.admit(caller.cost(10)).billed().await?.admitted().unwrap();
    /// let settled = admission.settle(caller, -8, &pass.bill().unwrap()).await?;
    /// assert_eq!((settled.outcomes[0].remaining, settled.outcomes[1].remaining), (98, 998));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the bill is not one of this caller's, or the store cannot answer.
    pub async fn settle(
        &self,
        caller: Caller<'_>,
        delta: i64,
        bill: &Bill,
    ) -> Result<Settlement, StoreError> {
        let live = self.shared.live.load_full();
        let client = caller.client_name(bill.missing_client);
        let corrections = corrections(&live, &caller, client.as_deref(), delta, bill);
        let receipt = Some(&bill.receipt);
        self.engine.operation(Operation::Settle { corrections: &corrections, receipt }).await
    }

    /// Whether everybody gets in, and rejections are only told.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shared.live.load().rules.mode == Mode::Shadow
    }

    /// The rules in force.
    pub fn rules(&self) -> Rules {
        self.shared.live.load().rules.clone()
    }

    /// The engine, for its store and its clock.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Switches all of it on, as it is from the start.
    pub fn enable(&self) {
        self.shared.enabled.store(true, Ordering::Relaxed);
    }

    /// Switches all of it off: everybody gets in, nothing is charged and nothing is counted. It
    /// costs a check one relaxed load.
    pub fn disable(&self) {
        self.shared.enabled.store(false, Ordering::Relaxed);
    }

    /// Whether it is switched on.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.shared.enabled.load(Ordering::Relaxed)
    }

    /// How much is pending: what is counted here, or what was told from outside and is still good,
    /// whichever is more.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.shared.pending.now()
    }

    /// Tells how much is pending, as counted elsewhere: the depth of a queue, say. It is good for
    /// `good_for`, so that nobody is kept out by a number whose sender is gone.
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
        self.shared.pending.tell(value, good_for);
    }

    /// Counts one more as pending until the guard is dropped, without asking whether it gets in:
    /// for work that comes by other ways.
    pub fn enter(&self) -> InFlight {
        InFlight::start(&self.shared.pending)
    }

    /// The limit of a tier; `None` for back-pressure and for a tier that there has never been.
    #[must_use]
    pub fn limit(&self, tier: Tier) -> Option<Limit> {
        let live = self.shared.live.load();
        match tier {
            Tier::Backpressure => None,
            Tier::Client => live.client.clone(),
            Tier::Organization => live.organization.clone(),
        }
    }

    /// The limiter of a tier, to peek, hold or reset by [`key`](Self::key); `None` for
    /// back-pressure and for a tier that there has never been.
    #[must_use]
    pub fn limiter(&self, tier: Tier) -> Option<Limiter> {
        let tiers = self.shared.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        let terms = match tier {
            Tier::Backpressure => None,
            Tier::Client => tiers.client.clone(),
            Tier::Organization => tiers.organization.clone(),
        };
        terms.map(|terms| Limiter::on(self.engine.clone(), terms))
    }

    /// The key of a caller's bucket in a tier, if it has one there.
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
        let live = self.shared.live.load();
        let client = caller.client_name(live.rules.missing_client);
        let target = admit::target(&live, tier, &caller, client.as_deref())?;
        Some(target.key.into())
    }

    /// How many callers a tier has rejected.
    #[must_use]
    pub fn rejected(&self, tier: Tier) -> u64 {
        self.shared.rejected.of(tier)
    }

    /// How many callers a tier would have rejected, had it not been in shadow mode.
    #[must_use]
    pub fn shadowed(&self, tier: Tier) -> u64 {
        self.shared.shadowed.of(tier)
    }

    /// How many callers were let in because they are on the allow-list.
    #[must_use]
    pub fn allowed(&self) -> u64 {
        self.shared.allowed.load(Ordering::Relaxed)
    }
}

/// The corrections of everything that a bill has charged.
fn corrections<'c>(
    live: &'c Live,
    caller: &'c Caller<'_>,
    client: Option<&'c str>,
    delta: i64,
    bill: &Bill,
) -> SmallVec<[Correction<'c>; 2]> {
    let tiers = bill.charged.tiers().iter();
    tiers
        .filter_map(|tier| admit::target(live, *tier, caller, client))
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
