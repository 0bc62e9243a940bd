//! Drivers: they sleep until something is due, then advance the queue.
//!
//! A pacer has one driver for each tokio runtime with waiters or leases, and one thread for those
//! outside any runtime. So a runtime that is shut down, or a current-thread runtime that is not
//! being driven, stalls only its own waiters. A driver ends with its last waiter, or soon after its
//! last lease.

pub(super) mod driver_slot;
pub(super) mod leases;
mod notify;
mod renewal;
#[cfg(feature = "tokio")]
mod shared;

#[cfg(feature = "tokio")]
use std::future::{Future, poll_fn};
#[cfg(feature = "tokio")]
use std::pin::pin;
use std::sync::{Arc, Weak};
#[cfg(feature = "tokio")]
use std::task::Poll;
use std::time::Duration;

use tidegate_core::Time;

use super::scope::{Scope, sooner};
use driver_slot::{Place, Post};
use notify::{Bell, ThreadBell};
#[cfg(feature = "tokio")]
use shared::Question;

/// Longest sleep of a driver while there are leases. It is not notified when the last lease ends,
/// so that a permit that follows soon finds it running; it ends the next time it wakes.
const LINGER: Duration = Duration::from_secs(10);

/// The drivers of one pacer.
#[derive(Debug, Default)]
pub(super) struct Drivers {
    running: Vec<Driver>,
    /// Runtimes without timers. Their waiters are driven by a thread.
    #[cfg(feature = "tokio")]
    without_timers: Vec<tokio::runtime::Id>,
    /// When the drivers expect something to be due.
    alarm: Option<Time>,
    started: u64,
    /// Whether the owner drives the pacer.
    by_hand: bool,
}

#[derive(Debug)]
struct Driver {
    place: Place,
    number: u64,
    /// Number of waiters, and of holders of leases, that rely on this driver.
    posts: usize,
    bell: Bell,
}

impl Driver {
    /// Whether it is still running. A runtime that is shut down silently drops its tasks.
    fn runs(&self) -> bool {
        match &self.bell {
            Bell::Thread(_) => true,
            #[cfg(feature = "tokio")]
            Bell::Tokio(_, task) => !task.is_finished(),
        }
    }
}

/// What a driver does next.
enum Shift {
    /// Sleep that long, or until notified.
    Sleep(Option<Duration>),
    /// Call a shared store for the head.
    #[cfg(feature = "tokio")]
    Ask(Box<Question>),
    /// Stop: nothing relies on this driver any more.
    Over,
}

impl Drivers {
    /// No drivers: the owner of the pacer advances it.
    pub(super) fn by_hand() -> Self {
        Self { by_hand: true, ..Self::default() }
    }

    /// Makes sure that a waiter on `executor` has a driver there: that of its slot if it still
    /// runs, else another. Call under the lock of the pacer. Returns `false` if no driver can be
    /// started.
    pub(super) fn attend(&mut self, post: &mut Post, place: Place, scope: &Arc<Scope>) -> bool {
        if self.by_hand {
            return true;
        }
        let place = self.with_timers(place);
        if place == Place::Thread && !scope.is_local() {
            // Only tasks can call a shared store.
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
                driver.posts += 1;
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

    /// Makes sure that leases are renewed: by the driver of the slot if it still runs, on any
    /// executor, else by one on `executor`. Without a driver they expire.
    pub(super) fn attend_leases(&mut self, post: &mut Post, place: Place, scope: &Arc<Scope>) {
        let known = post.0.and_then(|(known, number)| self.find(known, number));
        if known.is_none() {
            self.attend(post, place, scope);
        }
    }

    /// A waiter is gone. Notifies a driver that is no longer needed.
    pub(super) fn left(&mut self, post: &mut Post) {
        if let Some(driver) = self.vacate(post).filter(|driver| driver.posts == 0) {
            driver.bell.ring();
        }
    }

    /// A lease has ended. The driver is not notified; it notices by itself.
    pub(super) fn ended(&mut self, post: &mut Post) {
        self.vacate(post);
    }

    fn vacate(&mut self, post: &mut Post) -> Option<&Driver> {
        let (place, number) = post.0.take()?;
        let driver = self.find(place, number)?;
        driver.posts = driver.posts.saturating_sub(1);
        Some(driver)
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

    /// Sets the time at which something is due, and notifies drivers that would sleep longer.
    pub(super) fn set_alarm(&mut self, until: Option<Time>) {
        let sooner = match (until, self.alarm) {
            (Some(until), Some(before)) => until < before,
            (Some(_), None) => true,
            (None, _) => false,
        };
        self.alarm = until;
        if sooner {
            self.ring();
        }
    }

    /// Moves the alarm to `until` if that is sooner.
    pub(super) fn not_later(&mut self, until: Option<Time>) {
        self.set_alarm(sooner(until, self.alarm));
    }

    /// Notifies all drivers.
    pub(super) fn ring(&self) {
        self.running.iter().for_each(|driver| driver.bell.ring());
    }

    fn start(&mut self, place: Place, scope: &Arc<Scope>) -> Option<u64> {
        self.started += 1;
        let number = self.started;
        self.running.retain(|driver| driver.posts > 0);
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
        self.running.push(Driver { place, number, posts: 1, bell });
        Some(number)
    }

    /// Whether this driver still has waiters or leases.
    fn is_needed(&self, place: Place, number: u64) -> bool {
        let same = |driver: &&Driver| driver.place == place && driver.number == number;
        self.running.iter().find(same).is_some_and(|driver| driver.posts > 0)
    }

    fn remove(&mut self, place: Place, number: u64) {
        self.running.retain(|driver| driver.place != place || driver.number != number);
    }
}

/// Whether the runtime of this thread has timers. Creating one is the only way to find out.
#[cfg(feature = "tokio")]
fn has_timers() -> bool {
    std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

/// The identity of a driver, and the pacer that it drives.
struct Duty {
    scope: Weak<Scope>,
    place: Place,
    number: u64,
}

impl Duty {
    /// Renews what is due, advances the queue, and returns what to do next.
    fn look(&self) -> Shift {
        let Some(scope) = self.scope.upgrade() else { return Shift::Over };
        let mut state = scope.lock_renewed();
        let until = scope.move_on(&mut state);
        let wakes = state.scheduler.wakes();
        let needed = state.drivers.is_needed(self.place, self.number);
        if !needed {
            state.drivers.remove(self.place, self.number);
        }
        #[cfg(feature = "tokio")]
        let ask = match self.place {
            Place::Tokio(_) if needed => scope.to_ask(&mut state),
            _ => None,
        };
        let linger = (!state.leases.is_empty()).then_some(LINGER);
        drop(state);
        drop(wakes);
        if !needed {
            return Shift::Over;
        }
        #[cfg(feature = "tokio")]
        if let Some(question) = ask {
            return Shift::Ask(Box::new(question));
        }
        let now = scope.now();
        let sleep = until.map(|until| until.since(now));
        Shift::Sleep([sleep, linger].into_iter().flatten().min())
    }
}

/// A driver while it runs. However it ends, it is removed from the list, and remaining waiters are
/// woken so that one of them starts another. It is created where the driver runs and not where it
/// is started, because there the lock is held.
struct OnDuty(Duty);

impl Drop for OnDuty {
    fn drop(&mut self) {
        let Duty { scope, place, number } = &self.0;
        let Some(scope) = scope.upgrade() else { return };
        let mut state = scope.lock();
        let stranded = state.drivers.is_needed(*place, *number);
        state.drivers.remove(*place, *number);
        if stranded {
            state.scheduler.rouse();
        }
        let wakes = state.scheduler.wakes();
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
            Shift::Ask(question) => {
                let scope = question.scope().clone();
                for (ticket, receipt) in scope.take_stranded() {
                    ticket.give_back(scope.store(), &receipt).await;
                }
                ask_and_watch(&scope, *question, &bell).await;
            }
            Shift::Sleep(None) => bell.notified().await,
            Shift::Sleep(Some(span)) => {
                let _ = tokio::time::timeout(span, bell.notified()).await;
            }
        }
    }
}

/// Calls a shared store for the head, and expires the deadlines of all waiters meanwhile.
#[cfg(feature = "tokio")]
async fn ask_and_watch(scope: &Arc<Scope>, question: Question, bell: &tokio::sync::Notify) {
    let mut ask = pin!(question.ask());
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

fn drive_on_thread(duty: Duty, bell: &ThreadBell) {
    let duty = OnDuty(duty);
    while let Shift::Sleep(span) = duty.0.look() {
        bell.wait(span);
    }
}
