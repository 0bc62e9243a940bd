//! Drivers: they sleep until something is due, then advance the queue.
//!
//! A pacer has one driver for each tokio runtime with waiters or leases, and one thread for those
//! outside any runtime. So a runtime that is shut down, or a current-thread runtime that is not
//! being driven, stalls only its own waiters. A driver ends with its last waiter, or soon after its
//! last lease. There are none on a clock that a program moves: it advances the queue.

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
use tidegate_memory::clock::TimerBackoff;

use super::inner::{PacerInner, earlier};
use driver_slot::{DriverSlot, Executor};
use notify::{DriverNotifier, ThreadNotifier};
#[cfg(feature = "tokio")]
use shared::HeadCall;

/// Longest sleep of a driver while there are leases. It is not notified when the last lease ends,
/// so that a permit that follows soon finds it running; it ends the next time it wakes.
const MAX_SLEEP_WITH_LEASES: Duration = Duration::from_secs(10);

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
    /// Whether the owner of the pacer advances it, or its clock does.
    is_manual: bool,
}

#[derive(Debug)]
struct Driver {
    executor: Executor,
    number: u64,
    /// Number of waiters, and of holders of leases, that rely on this driver.
    users: usize,
    notifier: DriverNotifier,
}

impl Driver {
    /// Whether it is still running. A runtime that is shut down silently drops its tasks.
    fn is_running(&self) -> bool {
        match &self.notifier {
            DriverNotifier::Thread(_) => true,
            #[cfg(feature = "tokio")]
            DriverNotifier::Tokio(_, task) => !task.is_finished(),
        }
    }
}

/// What a driver does next.
enum DriverAction {
    /// Sleep that long, or until notified.
    Sleep(Option<Duration>),
    /// Call a shared store for the head.
    #[cfg(feature = "tokio")]
    CallStore(Box<HeadCall>),
    /// Stop: nothing relies on this driver any more.
    Stop,
}

impl Drivers {
    /// No drivers: the owner of the pacer advances it, or its clock does.
    pub(super) fn manual() -> Self {
        Self { is_manual: true, ..Self::default() }
    }

    pub(super) const fn is_manual(&self) -> bool {
        self.is_manual
    }

    /// Makes sure that a waiter on `executor` has a driver there: that of its slot if it still
    /// runs, else another. Call under the lock of the pacer. Returns `false` if no driver can be
    /// started.
    pub(super) fn ensure_driver(
        &mut self,
        driver_slot: &mut DriverSlot,
        executor: Executor,
        inner: &Arc<PacerInner>,
    ) -> bool {
        if self.is_manual {
            return true;
        }
        let executor = self.with_timers(executor);
        if executor == Executor::Thread && !inner.is_local() {
            // Only tasks can call a shared store.
            self.waiter_left(driver_slot);
            return false;
        }
        if let Some((known, number)) = driver_slot.0 {
            if known == executor && self.find(known, number).is_some() {
                return true;
            }
            self.waiter_left(driver_slot);
        }
        let found = self
            .running
            .iter_mut()
            .find(|driver| driver.executor == executor && driver.is_running());
        let number = match found {
            Some(driver) => {
                driver.users += 1;
                driver.number
            }
            // A runtime without timers, or one that is shut down, leaves it to a thread.
            None => match self.start(executor, inner) {
                Some(number) => number,
                None if executor != Executor::Thread => {
                    return self.ensure_driver(driver_slot, Executor::Thread, inner);
                }
                None => return false,
            },
        };
        driver_slot.0 = Some((executor, number));
        true
    }

    /// Makes sure that leases are renewed: by the driver of the slot if it still runs, on any
    /// executor, else by one on `executor`. Without a driver they expire.
    pub(super) fn ensure_lease_driver(
        &mut self,
        driver_slot: &mut DriverSlot,
        executor: Executor,
        inner: &Arc<PacerInner>,
    ) {
        let known = driver_slot.0.and_then(|(known, number)| self.find(known, number));
        if known.is_none() {
            self.ensure_driver(driver_slot, executor, inner);
        }
    }

    /// A waiter is gone. Notifies a driver that is no longer needed.
    pub(super) fn waiter_left(&mut self, driver_slot: &mut DriverSlot) {
        if let Some(driver) = self.release(driver_slot).filter(|driver| driver.users == 0) {
            driver.notifier.notify();
        }
    }

    /// A lease has ended. The driver is not notified; it notices by itself.
    pub(super) fn lease_ended(&mut self, driver_slot: &mut DriverSlot) {
        self.release(driver_slot);
    }

    fn release(&mut self, driver_slot: &mut DriverSlot) -> Option<&Driver> {
        let (executor, number) = driver_slot.0.take()?;
        let driver = self.find(executor, number)?;
        driver.users = driver.users.saturating_sub(1);
        Some(driver)
    }

    fn find(&mut self, executor: Executor, number: u64) -> Option<&mut Driver> {
        let same = |driver: &&mut Driver| driver.executor == executor && driver.number == number;
        self.running.iter_mut().find(same).filter(|driver| driver.is_running())
    }

    fn with_timers(&self, executor: Executor) -> Executor {
        match executor {
            #[cfg(feature = "tokio")]
            Executor::Tokio(id) if self.without_timers.contains(&id) => Executor::Thread,
            executor => executor,
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
            self.notify_all();
        }
    }

    /// Moves the alarm to `until` if that is sooner.
    pub(super) fn bring_alarm_forward(&mut self, until: Option<Time>) {
        self.set_alarm(earlier(until, self.alarm));
    }

    /// Notifies all drivers.
    pub(super) fn notify_all(&self) {
        self.running.iter().for_each(|driver| driver.notifier.notify());
    }

    fn start(&mut self, executor: Executor, inner: &Arc<PacerInner>) -> Option<u64> {
        self.started += 1;
        let number = self.started;
        self.running.retain(|driver| driver.users > 0);
        let inner = Arc::downgrade(inner);
        let context = DriverContext { inner, executor, number, timers: TimerBackoff::default() };
        let notifier = match executor {
            Executor::Thread => {
                let notifier = Arc::new(ThreadNotifier::default());
                let for_thread = notifier.clone();
                let run = move || drive_on_thread(context, &for_thread);
                std::thread::Builder::new().name("tidegate-pacer".into()).spawn(run).ok()?;
                DriverNotifier::Thread(notifier)
            }
            #[cfg(feature = "tokio")]
            Executor::Tokio(runtime) => {
                if !has_timers() {
                    self.without_timers.push(runtime);
                    return None;
                }
                let notifier = Arc::new(tokio::sync::Notify::new());
                let handle = tokio::runtime::Handle::try_current().ok()?;
                let task = handle.spawn(drive_on_tokio(context, notifier.clone())).abort_handle();
                if task.is_finished() {
                    return None;
                }
                DriverNotifier::Tokio(notifier, task)
            }
        };
        self.running.push(Driver { executor, number, users: 1, notifier });
        Some(number)
    }

    /// Whether this driver still has waiters or leases.
    fn is_needed(&self, executor: Executor, number: u64) -> bool {
        let same = |driver: &&Driver| driver.executor == executor && driver.number == number;
        self.running.iter().find(same).is_some_and(|driver| driver.users > 0)
    }

    fn remove(&mut self, executor: Executor, number: u64) {
        self.running.retain(|driver| driver.executor != executor || driver.number != number);
    }
}

/// Whether the runtime of this thread has timers. Creating one is the only way to find out.
#[cfg(feature = "tokio")]
fn has_timers() -> bool {
    std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

/// The identity of a driver, and the pacer that it drives.
struct DriverContext {
    inner: Weak<PacerInner>,
    executor: Executor,
    number: u64,
    timers: TimerBackoff,
}

impl DriverContext {
    /// Renews what is due, advances the queue, and returns what to do next. `has_fired` says
    /// whether the last sleep was not interrupted.
    fn run_once(&mut self, has_fired: bool) -> DriverAction {
        let Some(inner) = self.inner.upgrade() else { return DriverAction::Stop };
        let mut state = inner.lock_renewed();
        let until = inner.advance(&mut state);
        let wakes = state.scheduler.take_wakes();
        let needed = state.drivers.is_needed(self.executor, self.number);
        if !needed {
            state.drivers.remove(self.executor, self.number);
        }
        #[cfg(feature = "tokio")]
        let call = match self.executor {
            Executor::Tokio(_) if needed => inner.start_head_call(&mut state),
            _ => None,
        };
        let max_sleep = (!state.leases.is_empty()).then_some(MAX_SLEEP_WITH_LEASES);
        drop(state);
        drop(wakes);
        if !needed {
            return DriverAction::Stop;
        }
        #[cfg(feature = "tokio")]
        if let Some(head_call) = call {
            return DriverAction::CallStore(Box::new(head_call));
        }
        let now = inner.now();
        let sleep = until.map(|until| self.timers.span(until.since(now), now, has_fired));
        DriverAction::Sleep([sleep, max_sleep].into_iter().flatten().min())
    }
}

/// A driver while it runs. However it ends, it is removed from the list, and remaining waiters are
/// woken so that one of them starts another. It is created where the driver runs and not where it
/// is started, because there the lock is held.
struct RunningDriver(DriverContext);

impl Drop for RunningDriver {
    fn drop(&mut self) {
        let DriverContext { inner, executor, number, .. } = &self.0;
        let Some(inner) = inner.upgrade() else { return };
        let mut state = inner.lock();
        let has_users = state.drivers.is_needed(*executor, *number);
        state.drivers.remove(*executor, *number);
        if has_users {
            state.scheduler.wake_all();
        }
        let wakes = state.scheduler.take_wakes();
        drop(state);
        drop(wakes);
    }
}

#[cfg(feature = "tokio")]
async fn drive_on_tokio(context: DriverContext, notifier: Arc<tokio::sync::Notify>) {
    let mut driver = RunningDriver(context);
    let mut has_fired = false;
    loop {
        match driver.0.run_once(std::mem::take(&mut has_fired)) {
            DriverAction::Stop => return,
            DriverAction::CallStore(head_call) => {
                let inner = head_call.inner().clone();
                for (pending, receipt) in inner.take_abandoned() {
                    pending.refund(inner.store(), &receipt).await;
                }
                call_and_watch(&inner, *head_call, &notifier).await;
            }
            DriverAction::Sleep(None) => notifier.notified().await,
            DriverAction::Sleep(Some(span)) => {
                has_fired = tokio::time::timeout(span, notifier.notified()).await.is_err();
            }
        }
    }
}

/// Calls a shared store for the head, and expires the deadlines of all waiters meanwhile.
#[cfg(feature = "tokio")]
async fn call_and_watch(
    inner: &Arc<PacerInner>,
    head_call: HeadCall,
    notifier: &tokio::sync::Notify,
) {
    let mut call = pin!(head_call.run());
    loop {
        let until = inner.refresh().map(|until| until.since(inner.now()));
        let mut watch = pin!(async {
            match until {
                None => notifier.notified().await,
                Some(span) => {
                    let _ = tokio::time::timeout(span, notifier.notified()).await;
                }
            }
        });
        let completed = poll_fn(|context| match call.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => watch.as_mut().poll(context).map(|()| false),
        });
        if completed.await {
            return;
        }
    }
}

fn drive_on_thread(context: DriverContext, notifier: &ThreadNotifier) {
    let mut driver = RunningDriver(context);
    let mut has_fired = false;
    while let DriverAction::Sleep(span) = driver.0.run_once(has_fired) {
        has_fired = !notifier.wait(span);
    }
}
