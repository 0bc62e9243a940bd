//! Acquiring: options, the future that waits, and waiting on a thread.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::decide::check_list;
use tidegate_core::{Receipt, StoreError};

use super::claim::{Claim, Oversize};
use super::driver::{Place, Post};
use super::error::AcquireError;
use super::heart::{Granted, Polled, Refused};
use super::permit::{Grounds, OnDrop, Permit};
use super::queue::{Line, Priority};
use super::scope::{Scope, State, at_once, watch};
use super::slab::Id;
use super::ticket::{Ticket, Verdict};

/// A request for a permit. Nothing happens until it is awaited, or carried out with
/// [`now`](Self::now) or [`wait`](Self::wait).
#[must_use = "nothing happens until the request is awaited"]
pub struct Acquire {
    scope: Arc<Scope>,
    claims: SmallVec<[Claim; 1]>,
    line: Line,
    max_wait: Option<Duration>,
    oversize: Oversize,
    on_drop: OnDrop,
}

impl Acquire {
    pub(super) fn new(scope: Arc<Scope>, claims: SmallVec<[Claim; 1]>) -> Self {
        let tenant = scope.nobody().clone();
        let line = Line { priority: Priority::Normal, tenant, weight: 1 };
        let (oversize, on_drop) = (Oversize::default(), OnDrop::default());
        Self { scope, claims, line, max_wait: None, oversize, on_drop }
    }

    /// Waits at most that long, counted from the first poll. A wait that is longer as far as can be
    /// told is refused at once, with the projected wait, and spends nothing. Timers fire a little
    /// late: one that was due in time is granted up to 5 ms after. Default: as long as it takes.
    pub fn max_wait(mut self, span: Duration) -> Self {
        self.max_wait = Some(span);
        self
    }

    /// On behalf of this tenant. Tenants take turns by cost; inside a tenant it is first come,
    /// first served. Default: one tenant for all.
    pub fn tenant(mut self, name: &str) -> Self {
        self.line.tenant = name.into();
        self
    }

    /// How much the tenant may spend in a turn, as a multiple of others. Default: 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.line.weight = weight.max(1).into();
        self
    }

    /// In this class. Default: [`Priority::Normal`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.line.priority = priority;
        self
    }

    /// What to do with a cost above the capacity of its limit. Default: [`Oversize::Refuse`].
    pub fn oversize(mut self, oversize: Oversize) -> Self {
        self.oversize = oversize;
        self
    }

    /// What becomes of the tokens if the permit is dropped without being settled. Default:
    /// [`OnDrop::Keep`].
    pub fn on_drop(mut self, on_drop: OnDrop) -> Self {
        self.on_drop = on_drop;
        self
    }

    /// A permit without waiting, or an error with the projected wait. It is refused while others
    /// wait for the same: nobody is overtaken. For the store of this process; a shared one does
    /// not answer at once, so await with a [`max_wait`](Self::max_wait) there.
    ///
    /// # Errors
    /// When it would have to wait, or can never be granted, or the store is a shared one.
    pub fn now(self) -> Result<Permit, AcquireError> {
        if !self.scope.is_local() {
            return Err(AcquireError::NotAtOnce);
        }
        let mut wait = self.max_wait(Duration::ZERO).into_future();
        match wait.start(Waker::noop()) {
            Poll::Ready(done) => done,
            // A wait of zero is never left pending.
            Poll::Pending => Err(AcquireError::WouldWait),
        }
    }

    /// A permit, blocking this thread until there is one. Not for use inside a runtime.
    ///
    /// # Errors
    /// When the wait would be, or becomes, too long, or the cost can never be granted.
    pub fn wait(self) -> Result<Permit, AcquireError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut wait = self.into_future();
        // This thread is blocked, so a runtime that it may have entered does not run here.
        wait.place = Some(Place::Thread);
        loop {
            match Pin::new(&mut wait).poll(&mut context) {
                Poll::Ready(done) => return done,
                Poll::Pending => thread::park(),
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Permit, AcquireError>;
    type IntoFuture = Waiting;

    fn into_future(self) -> Waiting {
        Waiting { request: Some(self), queued: None, place: None }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("claims", &self.claims)
            .field("line", &self.line)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

/// The future of an [`Acquire`]. Dropping it at any point gives back exactly what it held.
#[must_use = "nothing happens until the future is awaited"]
pub struct Waiting {
    /// Until the first poll.
    request: Option<Acquire>,
    /// While in the queue.
    queued: Option<Queued>,
    /// Where it is driven, if not where it is polled.
    place: Option<Place>,
}

/// A place in the queue.
struct Queued {
    scope: Arc<Scope>,
    id: Id,
    post: Post,
    on_drop: OnDrop,
    max_wait: Option<Duration>,
}

impl Queued {
    /// What has become of the waiter; `None` while it waits, and then `waker` is kept.
    fn ask(&mut self, state: &mut State, waker: &Waker) -> Option<Result<Grounds, AcquireError>> {
        let (ticket, done) = match state.heart.poll(self.id, waker)? {
            Polled::Waiting => return None,
            Polled::Granted(ticket, granted) => (ticket, Ok(granted)),
            Polled::Refused(ticket, refused) => (ticket, Err(refused)),
        };
        state.drivers.left(&mut self.post);
        state.buckets.forget(&ticket);
        Some(match done {
            Ok(granted) => Ok(state.grounds(ticket, granted, self.on_drop)),
            Err(Refused::TimedOut) => {
                Err(AcquireError::TimedOut(self.max_wait.unwrap_or_default()))
            }
            #[cfg(feature = "tokio")]
            Err(Refused::TooLong(projected)) => {
                let max_wait = self.max_wait.unwrap_or_default();
                Err(AcquireError::TooLong { projected, max_wait })
            }
            Err(Refused::QueueFull(waiting)) => Err(AcquireError::QueueFull(waiting)),
            Err(Refused::NeverFits(index)) => Err(never_fits(&ticket.claims[index])),
            Err(Refused::Failed(error)) => Err(error.into()),
        })
    }

    fn leave(mut self) {
        self.scope.lock().drivers.left(&mut self.post);
        self.scope.leave(self.id);
    }
}

impl Future for Waiting {
    type Output = Result<Permit, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.request.is_some() {
            return self.start(context.waker());
        }
        let place = self.place.unwrap_or_else(Place::here);
        let Some(queued) = &mut self.queued else { return Poll::Pending };
        let scope = queued.scope.clone();
        let mut state = scope.lock();
        let done = queued.ask(&mut state, context.waker());
        // The future may have moved, or the runtime that it was driven on may have ended.
        let driven = done.is_some() || state.drivers.attend(&mut queued.post, place, &scope);
        let wakes = state.heart.wakes();
        drop(state);
        drop(wakes);
        match done {
            Some(done) => {
                self.queued = None;
                Poll::Ready(done.map(|grounds| Permit::new(scope, grounds)))
            }
            None if driven => Poll::Pending,
            None => {
                self.leave();
                Poll::Ready(Err(not_driven(&scope)))
            }
        }
    }
}

impl Waiting {
    /// The first poll: goes ahead at once if nobody waits, else joins the queue.
    fn start(&mut self, waker: &Waker) -> Poll<Result<Permit, AcquireError>> {
        let Some(request) = self.request.take() else { return Poll::Pending };
        let place = self.place.unwrap_or_else(Place::here);
        match request.start(waker, place) {
            Ok(Started::Permit(permit)) => Poll::Ready(Ok(permit)),
            Ok(Started::Queued(queued)) => {
                self.queued = Some(queued);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Leaves the queue, if it is in it.
    fn leave(&mut self) {
        if let Some(queued) = self.queued.take() {
            queued.leave();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("queued", &self.queued.is_some()).finish_non_exhaustive()
    }
}

#[expect(clippy::large_enum_variant, reason = "it is taken apart at once; a box would cost more")]
enum Started {
    Permit(Permit),
    Queued(Queued),
}

impl Acquire {
    fn start(self, waker: &Waker, place: Place) -> Result<Started, AcquireError> {
        self.check(place)?;
        let Self { scope, claims, line, max_wait, oversize, on_drop } = self;
        let mut ticket = Ticket { claims, buckets: SmallVec::new(), oversize };
        let mut state = scope.lock();
        if scope.is_local() && state.heart.is_free_for(&line) && !state.heart.slots.is_full() {
            let verdict = at_once(ticket.charge(scope.bank(), Duration::ZERO));
            match verdict.unwrap_or(Verdict::Blocked { index: 0, own: false, wait: None }) {
                Verdict::Granted { receipt, charged, .. } => {
                    ticket.correct(&charged);
                    state.heart.slots.take();
                    let grounds = state.grounds(ticket, Granted::at_once(receipt), on_drop);
                    drop(state);
                    return Ok(Started::Permit(Permit::new(scope, grounds)));
                }
                Verdict::Never(index) => return Err(never_fits(&ticket.claims[index])),
                Verdict::Failed(error) => return Err(error.into()),
                Verdict::Blocked { .. } => {}
            }
        }
        let id = state.join(&scope, ticket, &line, max_wait)?;
        let post = Post::default();
        let mut queued = Queued { scope: scope.clone(), id, post, on_drop, max_wait };
        scope.move_on(&mut state);
        let done = queued.ask(&mut state, waker);
        let waits = done.is_none() && (max_wait != Some(Duration::ZERO) || !scope.is_local());
        let driven = waits && state.drivers.attend(&mut queued.post, place, &scope);
        let wakes = state.heart.wakes();
        drop(state);
        drop(wakes);
        match done {
            Some(done) => Ok(Started::Permit(Permit::new(scope, done?))),
            None if driven => Ok(Started::Queued(queued)),
            None => {
                queued.leave();
                Err(if waits { not_driven(&scope) } else { AcquireError::WouldWait })
            }
        }
    }

    fn check(&self, place: Place) -> Result<(), AcquireError> {
        if !self.claims.iter().all(|claim| claim.is_on(self.scope.bank())) {
            return Err(AcquireError::OtherStore);
        }
        if !self.scope.is_local() && place == Place::Thread {
            return Err(AcquireError::NoRuntime);
        }
        check_list(self.claims.len()).map_err(StoreError::from)?;
        Ok(())
    }
}

impl State {
    /// Puts a ticket into the queue, unless it is full or the wait would be too long.
    fn join(
        &mut self,
        scope: &Arc<Scope>,
        mut ticket: Ticket,
        line: &Line,
        max_wait: Option<Duration>,
    ) -> Result<Id, AcquireError> {
        if self.heart.is_full_for(line) {
            return Err(AcquireError::QueueFull(self.heart.waiting()));
        }
        ticket.buckets = ticket.claims.iter().map(|claim| self.buckets.know(claim)).collect();
        let weight = ticket.weight();
        // A shared store tells when the ticket is at the head.
        if let (Some(max_wait), true) = (max_wait, scope.is_local()) {
            let ahead = |index: usize| self.heart.ahead(line, weight, ticket.buckets[index]);
            if let Err(error) = soon_enough(&ticket, scope, ahead, max_wait) {
                self.buckets.forget(&ticket);
                return Err(error);
            }
        }
        watch(scope, &ticket);
        let now = scope.now();
        let deadline = max_wait.map(|max_wait| now.after(max_wait));
        Ok(self.heart.join(line, weight, deadline, ticket, now))
    }

    fn grounds(&mut self, ticket: Ticket, granted: Granted<Receipt>, on_drop: OnDrop) -> Grounds {
        let in_flight = self.heart.slots.in_flight();
        let epoch = self.adaptive.as_mut().map_or(0, |adaptive| adaptive.leaves(in_flight));
        let Granted { grant: receipt, waited, parts } = granted;
        Grounds { ticket, receipt, waited, parts, on_drop, epoch }
    }
}

fn soon_enough(
    ticket: &Ticket,
    scope: &Scope,
    ahead: impl Fn(usize) -> u128,
    max_wait: Duration,
) -> Result<(), AcquireError> {
    let projected = at_once(ticket.projected(scope.bank(), ahead));
    match projected.unwrap_or(Ok(Ok(Duration::ZERO)))? {
        Ok(projected) if projected <= max_wait => Ok(()),
        Ok(projected) => Err(AcquireError::TooLong { projected, max_wait }),
        Err(index) => Err(never_fits(&ticket.claims[index])),
    }
}

fn never_fits(claim: &Claim) -> AcquireError {
    AcquireError::NeverFits(claim.limit())
}

/// Nobody watches the time: no thread for it, or no runtime to ask a shared store.
fn not_driven(scope: &Scope) -> AcquireError {
    if scope.is_local() { AcquireError::NoDriver } else { AcquireError::NoRuntime }
}
