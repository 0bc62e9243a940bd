//! Drivers: they sleep until the next thing is due, then move the queue on.
//!
//! A scope has one driver for each tokio runtime in which somebody waits, and one thread for
//! waiters outside of any. So a runtime that is shut down, or a current-thread one that nobody
//! runs for the moment, stalls only its own waiters. A driver ends with its last waiter.

#[cfg(feature = "tokio")]
use std::future::{Future, poll_fn};
#[cfg(feature = "tokio")]
use std::pin::pin;
use std::sync::{Arc, Weak};
#[cfg(feature = "tokio")]
use std::task::Poll;
use std::time::Duration;

use tidegate_core::Time;

use super::scope::Scope;
#[cfg(feature = "tokio")]
use super::slab::Id;
#[cfg(feature = "tokio")]
use super::ticket::Ticket;

/// Where a waiter's future is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On no runtime that we know timers of.
    Thread,
    /// On this tokio runtime.
    #[cfg(feature = "tokio")]
    Tokio(tokio::runtime::Id),
}

impl Place {
    /// Where this code runs.
    pub(super) fn here() -> Self {
        #[cfg(feature = "tokio")]
        if let Ok(handle) = tokio::runtime::Handle::try_current() {
            return Self::Tokio(handle.id());
        }
        Self::Thread
    }
}

/// Where a waiter is driven: to be looked at again with every poll, since a future may move, and
/// runtimes end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Post(Option<(Place, u64)>);

/// The drivers of one scope.
#[derive(Debug, Default)]
pub(super) struct Drivers {
    running: Vec<Driver>,
    /// Runtimes that have no timers. Their waiters are driven by a thread.
    #[cfg(feature = "tokio")]
    without_timers: Vec<tokio::runtime::Id>,
    /// When the drivers think that the next thing is due.
    alarm: Option<Time>,
    started: u64,
    /// Somebody else looks at the time.
    by_hand: bool,
}

#[derive(Debug)]
struct Driver {
    place: Place,
    number: u64,
    waiters: usize,
    bell: Bell,
}

/// Rouses a driver before its time.
#[derive(Clone, Debug)]
enum Bell {
    Thread(Arc<ThreadBell>),
    #[cfg(feature = "tokio")]
    Tokio(Arc<tokio::sync::Notify>, tokio::task::AbortHandle),
}

impl Driver {
    /// Whether it has not ended. A runtime that is shut down drops what is spawned on it unseen.
    fn runs(&self) -> bool {
        match &self.bell {
            Bell::Thread(_) => true,
            #[cfg(feature = "tokio")]
            Bell::Tokio(_, task) => !task.is_finished(),
        }
    }
}

impl Bell {
    fn ring(&self) {
        match self {
            Self::Thread(bell) => bell.ring(),
            #[cfg(feature = "tokio")]
            Self::Tokio(bell, _) => bell.notify_one(),
        }
    }
}

/// What a driver finds when it looks.
enum Shift {
    /// Sleep that long, or until the bell rings.
    Sleep(Option<Duration>),
    /// Ask a shared store for this waiter.
    #[cfg(feature = "tokio")]
    Ask(Arc<Scope>, Id, Ticket),
    /// Nobody waits here any more.
    Over,
}

impl Drivers {
    /// No drivers at all: the owner of the pacer moves it on.
    pub(super) fn by_hand() -> Self {
        Self { by_hand: true, ..Self::default() }
    }

    /// Makes sure that somebody who waits in `place` is driven there: by the driver of its post if
    /// that still runs, else by another. To be called under the lock of the scope. `false` if no
    /// driver can be started.
    pub(super) fn attend(&mut self, post: &mut Post, place: Place, scope: &Arc<Scope>) -> bool {
        if self.by_hand {
            return true;
        }
        let place = self.with_timers(place);
        if place == Place::Thread && !scope.is_local() {
            // A shared store is asked by tasks only.
            self.left(post);
            return false;
        }
        if let Some((known, number)) = post.0 {
            if known == place && self.find(known, number).is_some() {
                return true;
            }
            self.left(post);
        }
        let found = self.running.iter_mut().find(|driver| driver.place == place && driver.runs());
        let number = match found {
            Some(driver) => {
                driver.waiters += 1;
                driver.number
            }
            // A runtime without timers, or one that is shut down, leaves it to a thread.
            None => match self.start(place, scope) {
                Some(number) => number,
                None if place != Place::Thread => return self.attend(post, Place::Thread, scope),
                None => return false,
            },
        };
        post.0 = Some((place, number));
        true
    }

    /// A waiter waits no more.
    pub(super) fn left(&mut self, post: &mut Post) {
        let Some((place, number)) = post.0.take() else { return };
        let Some(driver) = self.find(place, number) else { return };
        driver.waiters = driver.waiters.saturating_sub(1);
        if driver.waiters == 0 {
            driver.bell.ring();
        }
    }

    fn find(&mut self, place: Place, number: u64) -> Option<&mut Driver> {
        let same = |driver: &&mut Driver| driver.place == place && driver.number == number;
        self.running.iter_mut().find(same).filter(|driver| driver.runs())
    }

    fn with_timers(&self, place: Place) -> Place {
        match place {
            #[cfg(feature = "tokio")]
            Place::Tokio(id) if self.without_timers.contains(&id) => Place::Thread,
            place => place,
        }
    }

    /// Sets the time at which there is more to do; drivers that would sleep longer are roused.
    pub(super) fn set_alarm(&mut self, until: Option<Time>) {
        let sooner = match (until, self.alarm) {
            (Some(until), Some(before)) => until < before,
            (Some(_), None) => true,
            (None, _) => false,
        };
        self.alarm = until;
        if sooner {
            self.running.iter().for_each(|driver| driver.bell.ring());
        }
    }

    fn start(&mut self, place: Place, scope: &Arc<Scope>) -> Option<u64> {
        self.started += 1;
        let number = self.started;
        self.running.retain(|driver| driver.waiters > 0);
        let duty = Duty { scope: Arc::downgrade(scope), place, number };
        let bell = match place {
            Place::Thread => {
                let bell = Arc::new(ThreadBell::default());
                let for_thread = bell.clone();
                let run = move || drive_on_thread(duty, &for_thread);
                std::thread::Builder::new().name("tidegate-pacer".into()).spawn(run).ok()?;
                Bell::Thread(bell)
            }
            #[cfg(feature = "tokio")]
            Place::Tokio(runtime) => {
                if !has_timers() {
                    self.without_timers.push(runtime);
                    return None;
                }
                let bell = Arc::new(tokio::sync::Notify::new());
                let handle = tokio::runtime::Handle::try_current().ok()?;
                let task = handle.spawn(drive_on_tokio(duty, bell.clone())).abort_handle();
                if task.is_finished() {
                    return None;
                }
                Bell::Tokio(bell, task)
            }
        };
        self.running.push(Driver { place, number, waiters: 1, bell });
        Some(number)
    }

    /// Whether a driver with waiters runs there.
    fn is_needed(&self, place: Place, number: u64) -> bool {
        let same = |driver: &&Driver| driver.place == place && driver.number == number;
        self.running.iter().find(same).is_some_and(|driver| driver.waiters > 0)
    }

    fn remove(&mut self, place: Place, number: u64) {
        self.running.retain(|driver| driver.place != place || driver.number != number);
    }
}

/// Whether the runtime of this thread has timers. Making one is the only way to find out.
#[cfg(feature = "tokio")]
fn has_timers() -> bool {
    std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

/// What one driver has to do.
struct Duty {
    scope: Weak<Scope>,
    place: Place,
    number: u64,
}

impl Duty {
    /// Moves the queue on and says how long to sleep.
    fn look(&self) -> Shift {
        let Some(scope) = self.scope.upgrade() else { return Shift::Over };
        let mut state = scope.lock();
        let until = scope.move_on(&mut state);
        let wakes = state.heart.wakes();
        let needed = state.drivers.is_needed(self.place, self.number);
        if !needed {
            state.drivers.remove(self.place, self.number);
        }
        #[cfg(feature = "tokio")]
        let ask = match self.place {
            Place::Tokio(_) if needed => scope.to_ask(&mut state),
            _ => None,
        };
        drop(state);
        drop(wakes);
        if !needed {
            return Shift::Over;
        }
        #[cfg(feature = "tokio")]
        if let Some((id, ticket)) = ask {
            return Shift::Ask(scope, id, ticket);
        }
        let now = scope.now();
        Shift::Sleep(until.map(|until| until.since(now)))
    }
}

/// A driver at its post. However it ends, it is taken off the list; waiters that are left are
/// woken, so that one of them starts another. It is made where the driver runs and not where it
/// is started: there the lock is held.
struct OnDuty(Duty);

impl Drop for OnDuty {
    fn drop(&mut self) {
        let Duty { scope, place, number } = &self.0;
        let Some(scope) = scope.upgrade() else { return };
        let mut state = scope.lock();
        let stranded = state.drivers.is_needed(*place, *number);
        state.drivers.remove(*place, *number);
        if stranded {
            state.heart.rouse();
        }
        let wakes = state.heart.wakes();
        drop(state);
        drop(wakes);
    }
}

#[cfg(feature = "tokio")]
async fn drive_on_tokio(duty: Duty, bell: Arc<tokio::sync::Notify>) {
    let duty = OnDuty(duty);
    loop {
        match duty.0.look() {
            Shift::Over => return,
            Shift::Ask(scope, id, ticket) => {
                for (ticket, receipt) in scope.take_stranded() {
                    ticket.give_back(scope.bank(), &receipt).await;
                }
                ask_and_watch(&scope, id, ticket, &bell).await;
            }
            Shift::Sleep(None) => bell.notified().await,
            Shift::Sleep(Some(span)) => {
                let _ = tokio::time::timeout(span, bell.notified()).await;
            }
        }
    }
}

/// Asks a shared store for the head, and watches the deadlines of all meanwhile.
#[cfg(feature = "tokio")]
async fn ask_and_watch(scope: &Arc<Scope>, id: Id, ticket: Ticket, bell: &tokio::sync::Notify) {
    let mut ask = pin!(scope.ask(id, ticket));
    loop {
        let until = scope.refresh().map(|until| until.since(scope.now()));
        let mut watch = pin!(async {
            match until {
                None => bell.notified().await,
                Some(span) => {
                    let _ = tokio::time::timeout(span, bell.notified()).await;
                }
            }
        });
        let asked = poll_fn(|context| match ask.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => watch.as_mut().poll(context).map(|()| false),
        });
        if asked.await {
            return;
        }
    }
}

/// A bell for a thread: rung or not, under a lock.
#[derive(Debug, Default)]
struct ThreadBell {
    rung: std::sync::Mutex<bool>,
    condition: std::sync::Condvar,
}

impl ThreadBell {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        self.condition.notify_one();
    }

    fn wait(&self, span: Option<Duration>) {
        let poisoned = std::sync::PoisonError::into_inner;
        let rung = self.rung.lock().unwrap_or_else(poisoned);
        let mut rung = match span {
            None => self.condition.wait_while(rung, |rung| !*rung).unwrap_or_else(poisoned),
            Some(span) => {
                let waited = self.condition.wait_timeout_while(rung, span, |rung| !*rung);
                waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
            }
        };
        *rung = false;
    }
}

fn drive_on_thread(duty: Duty, bell: &ThreadBell) {
    let duty = OnDuty(duty);
    while let Shift::Sleep(span) = duty.0.look() {
        bell.wait(span);
    }
}
