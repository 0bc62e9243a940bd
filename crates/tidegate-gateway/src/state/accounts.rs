//! Accounts of a provider: one for our own key, or one for each key that callers bring.
//!
//! Keys of callers come from outside, so their number is bounded: the one that was used longest ago
//! and has nothing under way is forgotten for a new one, with all that was learned of it. An engine
//! does not forget limits, so each of these accounts has books of its own. If all of them are busy,
//! further keys share one account.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use http::StatusCode;
use tidegate_llm::plan::{Constraint, RawConstraint, Source};
use tidegate_llm::rate_limit::{Account, AccountError, Books, Concurrency};
use tidegate_llm::retry::Budget;
use tidegate_llm::telemetry::Observer;
use tidegate_providers::{Credential, Endpoint};

use crate::state::call_context::Original;
use crate::state::status::Samples;
use crate::upstream::settings::Upstream;
use crate::upstream::stack::Stack;

/// The most keys of callers that are told apart.
pub(crate) const MAX_ACCOUNTS: usize = 1_024;
/// Whose account further keys share. No key has this hash.
const OVERFLOW: &str = "\u{0}overflow";

/// One account, and what the gateway knows of it.
pub(crate) struct Entry {
    pub(crate) account: Account,
    /// What its calls may retry, all configurations together.
    pub(crate) budget: Budget,
    credential: Credential,
    books: Books,
    /// The stack, and the number of the configuration that it was made for.
    stack: ArcSwapOption<(u64, Stack)>,
    /// When it was last asked for, as a number that grows.
    used: AtomicU64,
    /// Whether the key was refused, and never anything else.
    is_dead: AtomicBool,
    /// Whether the provider has ever looked beyond the key, so that there is something to remember.
    is_known: AtomicBool,
    /// What the provider said when a quota ran out, and of which model.
    closed: Mutex<Option<(String, Original)>>,
    pub(crate) samples: Samples,
}

impl Entry {
    /// The stack for a configuration, made if it is another one than last time.
    pub(crate) fn stack(
        &self,
        generation: u64,
        make: impl FnOnce(&Account) -> Stack,
    ) -> Arc<(u64, Stack)> {
        if let Some(stack) = self.stack.load_full().filter(|stack| stack.0 == generation) {
            return stack;
        }
        let stack = Arc::new((generation, make(&self.account)));
        self.stack.store(Some(stack.clone()));
        stack
    }

    /// What the provider thinks of the key, by the status of an answer. Who was accepted once is not
    /// forgotten for a refusal: its limits would begin anew each time.
    pub(crate) fn judged(&self, status: StatusCode) {
        if status == StatusCode::UNAUTHORIZED {
            let is_known = self.is_known.load(Ordering::Relaxed);
            self.is_dead.store(!is_known, Ordering::Relaxed);
        } else if !status.is_server_error() && !self.is_known.load(Ordering::Relaxed) {
            self.is_known.store(true, Ordering::Relaxed);
            self.is_dead.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn closed(&self, model: &str, original: Original) {
        *lock(&self.closed) = Some((model.to_owned(), original));
    }

    pub(crate) fn closed_with(&self, model: &str) -> Option<Original> {
        let closed = lock(&self.closed);
        closed.as_ref().filter(|(known, _)| known == model).map(|(_, original)| original.clone())
    }
}

/// What accounts of a provider have in common, and can be changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    limits: Option<Constraint>,
    endpoints: HashMap<Endpoint, Constraint>,
    places: Option<NonZeroU32>,
    credential: Option<Credential>,
}

impl Shape {
    pub(crate) fn of(upstream: &Upstream) -> Self {
        Self {
            limits: upstream.limits.clone(),
            endpoints: upstream.endpoints.clone(),
            places: upstream.places(),
            credential: upstream.credential.clone(),
        }
    }

    /// The same, however many calls are under way.
    pub(crate) fn without_places(mut self) -> Self {
        self.places = None;
        self.limits = self.limits.and_then(|limits| {
            let raw = RawConstraint { max_concurrent_requests: None, ..limits.into() };
            Constraint::try_new(&raw).ok()
        });
        self
    }

    /// Whether accounts can go on under another shape. A concurrency that adapts is another kind of
    /// queue than one that does not.
    fn is_like(&self, other: &Self) -> bool {
        self.places.is_some() == other.places.is_some()
    }
}

/// What new accounts are made with, and never changes.
#[derive(Clone, Debug)]
pub(crate) struct Make {
    pub(crate) upstream: Upstream,
    pub(crate) books: Books,
    pub(crate) observer: Arc<dyn Observer>,
}

/// The accounts of a provider.
pub(crate) struct Accounts {
    make: Make,
    clock: AtomicU64,
    state: Mutex<State>,
}

struct State {
    shape: Shape,
    known: HashMap<Arc<str>, Arc<Entry>>,
}

impl Accounts {
    /// No accounts yet, but for that of a key of our own.
    pub(crate) fn new(make: Make, shape: Shape) -> Result<Self, AccountError> {
        let state = Mutex::new(State { shape, known: HashMap::new() });
        let accounts = Self { make, clock: AtomicU64::new(0), state };
        accounts.own()?;
        Ok(accounts)
    }

    /// The account of our own key, or of no key.
    pub(crate) fn own(&self) -> Result<Arc<Entry>, AccountError> {
        let mut state = lock(&self.state);
        let credential = state.shape.credential.clone().unwrap_or_else(Credential::none);
        self.entry(&mut state, credential.id(), &credential, &self.make.books)
    }

    /// The account of a caller's key.
    pub(crate) fn of_caller(&self, credential: &Credential) -> Result<Arc<Entry>, AccountError> {
        if credential.reveal().is_none() {
            return self.own();
        }
        let mut state = lock(&self.state);
        if let Some(entry) = state.known.get(credential.id()) {
            self.touch(entry);
            return Ok(entry.clone());
        }
        if state.known.len() >= MAX_ACCOUNTS && !state.forget_one() {
            return self.entry(&mut state, OVERFLOW, &Credential::new(OVERFLOW), &Books::small());
        }
        self.entry(&mut state, credential.id(), credential, &Books::small())
    }

    /// A call is over: an account whose key was refused is forgotten, if it was the last.
    pub(crate) fn leaves(&self, entry: &Arc<Entry>) {
        if !entry.is_dead.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.state);
        let id = entry.account.scope().credential_id();
        let is_own = state.shape.credential.as_ref().is_some_and(|own| own.id() == id);
        let is_same = state.known.get(id).is_some_and(|known| Arc::ptr_eq(known, entry));
        // The table has one, and the call that leaves.
        if is_same && !is_own && Arc::strong_count(entry) == 2 {
            state.known.remove(id);
        }
    }

    /// Comes under another shape. What was spent counts on, and whoever waits goes by it at once.
    pub(crate) fn reshape(&self, shape: Shape) -> Result<(), AccountError> {
        let mut state = lock(&self.state);
        if state.shape == shape {
            return Ok(());
        }
        let before = std::mem::replace(&mut state.shape, shape);
        if !before.is_like(&state.shape) {
            return self.rebuild(&mut state, before);
        }
        let changed = state.known.values().try_for_each(|entry| state.shape.put_on(&entry.account));
        if let Err(error) = changed {
            // Those that were changed go back.
            for entry in state.known.values() {
                if let Err(error) = before.put_on(&entry.account) {
                    tracing::error!(%error, "limits are those of two configurations");
                }
            }
            state.shape = before;
            return Err(error);
        }
        Ok(())
    }

    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        lock(&self.state).known.values().cloned().collect()
    }

    /// New accounts on the books of those that there are.
    fn rebuild(&self, state: &mut State, before: Shape) -> Result<(), AccountError> {
        let mut known = HashMap::new();
        for (id, entry) in &state.known {
            match self.open(&state.shape, &entry.credential, &entry.books) {
                Ok(entry) => known.insert(id.clone(), entry),
                Err(error) => {
                    state.shape = before;
                    return Err(error);
                }
            };
        }
        state.known = known;
        Ok(())
    }

    fn entry(
        &self,
        state: &mut State,
        id: &str,
        credential: &Credential,
        books: &Books,
    ) -> Result<Arc<Entry>, AccountError> {
        if let Some(entry) = state.known.get(id) {
            self.touch(entry);
            return Ok(entry.clone());
        }
        let entry = self.open(&state.shape, credential, books)?;
        self.touch(&entry);
        state.known.insert(id.into(), entry.clone());
        Ok(entry)
    }

    fn open(
        &self,
        shape: &Shape,
        credential: &Credential,
        books: &Books,
    ) -> Result<Arc<Entry>, AccountError> {
        let Make { upstream, observer, .. } = &self.make;
        let mut builder = Account::builder(upstream.name.clone(), credential)
            .dialect(upstream.dialect)
            .books(books.clone())
            .observer(observer.clone())
            .warn_each_minute();
        if let Some(limits) = &shape.limits {
            builder = builder.limits(limits.clone(), Source::Override);
        }
        for (endpoint, constraint) in &shape.endpoints {
            builder = builder.endpoint(endpoint.clone(), constraint.clone());
        }
        if let Some(places) = shape.places {
            builder = builder.concurrency(Concurrency::Fixed(places.get().into()));
        }
        Ok(Arc::new(Entry {
            account: builder.build()?,
            budget: Budget::default(),
            credential: credential.clone(),
            books: books.clone(),
            stack: ArcSwapOption::empty(),
            used: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            closed: Mutex::default(),
            samples: Samples::default(),
        }))
    }

    fn touch(&self, entry: &Entry) {
        entry.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Shape {
    /// Brings an account under this shape.
    fn put_on(&self, account: &Account) -> Result<(), AccountError> {
        let had_limits = account.constraint().is_some();
        if let Some(limits) = self.limits.clone().or_else(|| had_limits.then(unlimited).flatten()) {
            account.reconfigure(limits, Source::Override)?;
        }
        let endpoints = self.endpoints.iter();
        account.set_endpoints(endpoints.map(|(name, limits)| (name.clone(), limits.clone())))?;
        if let Some(places) = self.places {
            account.set_concurrency(places.get().into());
        }
        Ok(())
    }
}

/// Limits that limit nothing.
fn unlimited() -> Option<Constraint> {
    Constraint::try_new(&RawConstraint::default()).ok()
}

impl State {
    /// Makes room for one, if one has nothing under way.
    fn forget_one(&mut self) -> bool {
        let own = self.shape.credential.as_ref().map(Credential::id);
        let idle = self.known.iter().filter(|(id, entry)| {
            Arc::strong_count(entry) == 1 && own != Some(&***id) && &***id != OVERFLOW
        });
        let oldest = idle.min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed));
        let Some(id) = oldest.map(|(id, _)| id.clone()) else { return false };
        self.known.remove(&id).is_some()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
