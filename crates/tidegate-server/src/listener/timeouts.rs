//! Timeouts of one connection.
//!
//! The stream reports reads and blocked writes, the service reports when a request begins and ends.
//! hyper's own timeout for heads is not used because it also runs while a connection is idle.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::{Instant, Sleep};

use super::bounds::Bounds;
use super::eviction::{Evict, Wait};

/// Why a connection is closed by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The caller exceeded a timeout.
    TimedOut,
    /// The connection was idle, and its place was needed for another.
    Evicted,
}

/// The timeouts of one connection.
#[derive(Debug)]
pub(crate) struct Timeouts {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    awaited: Awaited,
    /// Deadline for progress in sending the response, while sending is blocked.
    write: Option<Instant>,
    /// The least number of bytes that remain of a body that its handler did not read to the end.
    unread: Option<u64>,
    /// Whether to close as soon as the connection waits for its caller.
    is_evicted: bool,
    /// Wakes the task that serves the connection.
    task: Option<Waker>,
}

impl State {
    /// Returns what the connection waits for, if it has nothing else to do.
    fn current_wait(&self, bounds: &Bounds) -> Option<Wait> {
        match (self.write, self.awaited) {
            (Some(_), _) | (None, Awaited::Nothing) => None,
            (None, Awaited::Head { until }) => Some(Wait::Head { since: until - bounds.head }),
            (None, Awaited::Request { until }) => {
                Some(Wait::Request { since: until - bounds.idle })
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let read = match self.awaited {
            Awaited::Head { until } | Awaited::Request { until } => Some(until),
            Awaited::Nothing => None,
        };
        read.into_iter().chain(self.write).min()
    }

    /// Stores the waker of the task, which rarely changes.
    fn register_task(&mut self, task: &Waker) {
        if !self.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            self.task = Some(task.clone());
        }
    }
}

/// What the caller must send next.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    /// The rest of a head.
    Head { until: Instant },
    /// Another request. If its first bytes arrived during the previous response, this also bounds
    /// the rest of its head.
    Request { until: Instant },
    /// Nothing: a request is being handled, and its handler waits for the body.
    Nothing,
}

impl Timeouts {
    /// Starts the timeouts of a new connection.
    pub(crate) fn new(bounds: Bounds) -> Self {
        let awaited = Awaited::Head { until: Instant::now() + bounds.head };
        let state = State { awaited, write: None, unread: None, is_evicted: false, task: None };
        Self { bounds, state: Mutex::new(state) }
    }

    /// Returns the deadline of a connection that never sends anything.
    pub(crate) fn first_deadline(&self) -> Instant {
        self.state().deadline().unwrap_or_else(Instant::now)
    }

    /// Records that bytes were read.
    pub(crate) fn bytes_read(&self) {
        let mut state = self.state();
        if let Awaited::Request { .. } = state.awaited {
            state.awaited = Awaited::Head { until: Instant::now() + self.bounds.head };
        }
    }

    /// Records that a request head is complete.
    pub(crate) fn head_received(&self) {
        let mut state = self.state();
        state.awaited = Awaited::Nothing;
        state.unread = None;
    }

    /// Records that the handler dropped the body before its end, with at least `remaining` bytes to
    /// come.
    pub(super) fn body_unread(&self, remaining: u64) {
        self.state().unread = Some(remaining);
    }

    /// Returns the least number of bytes of the body that its handler left unread, if it left any.
    pub(super) fn unread(&self) -> Option<u64> {
        self.state().unread
    }

    /// Returns whether the caller may still be sending a request that was refused: a body that its
    /// handler left unread, or a head that was not understood.
    pub(super) fn is_request_unread(&self) -> bool {
        let state = self.state();
        state.unread.is_some() || matches!(state.awaited, Awaited::Head { .. })
    }

    /// Records that the response has ended.
    pub(crate) fn response_ended(&self) {
        self.state().awaited = Awaited::Request { until: Instant::now() + self.bounds.idle };
    }

    /// Records progress in sending the response.
    pub(crate) fn write_progressed(&self) {
        self.state().write = None;
    }

    /// Records that sending the response is blocked.
    pub(crate) fn write_blocked(&self) {
        let until = || Instant::now() + self.bounds.write;
        self.state().write.get_or_insert_with(until);
    }

    /// Ready when the connection must close. `timer` can be any timer, but must be the same one in
    /// every call.
    ///
    /// Call this after polling the connection, so that everything that can be sent has been sent.
    pub(crate) fn poll_close(
        &self,
        mut timer: Pin<&mut Sleep>,
        cx: &mut Context<'_>,
    ) -> Poll<CloseReason> {
        let until = {
            let mut state = self.state();
            if state.is_evicted && state.current_wait(&self.bounds).is_some() {
                return Poll::Ready(CloseReason::Evicted);
            }
            state.register_task(cx.waker());
            state.deadline()
        };
        let Some(until) = until else { return Poll::Pending };
        if until < timer.deadline() {
            timer.as_mut().reset(until);
        }
        // The deadline moves with every request. The timer is not reset each time: it may fire
        // early, and is then set again.
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= until {
                return Poll::Ready(CloseReason::TimedOut);
            }
            timer.as_mut().reset(until);
        }
        Poll::Pending
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Evict for Timeouts {
    fn current_wait(&self) -> Option<Wait> {
        self.state().current_wait(&self.bounds)
    }

    fn evict(&self, wait: Wait) -> bool {
        let mut state = self.state();
        if state.current_wait(&self.bounds) != Some(wait) {
            return false;
        }
        state.is_evicted = true;
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::time::Duration;

    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Waits for the close in virtual time and returns how long it took.
    async fn time_until_close(timeouts: &Timeouts, mut timer: Pin<&mut Sleep>) -> Duration {
        let start = Instant::now();
        poll_fn(|cx| timeouts.poll_close(timer.as_mut(), cx)).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_own_timeout() {
        let timeouts = Timeouts::new(Bounds::default());
        let mut timer = pin!(tokio::time::sleep(secs(1)));
        assert_eq!(time_until_close(&timeouts, timer.as_mut()).await, secs(10));
        timeouts.head_received();
        let never =
            tokio::time::timeout(secs(3_600), time_until_close(&timeouts, timer.as_mut())).await;
        assert!(never.is_err());
        timeouts.response_ended();
        assert_eq!(time_until_close(&timeouts, timer.as_mut()).await, secs(60));
        timeouts.response_ended();
        tokio::time::advance(secs(50)).await;
        timeouts.bytes_read();
        tokio::time::advance(secs(4)).await;
        timeouts.bytes_read();
        assert_eq!(time_until_close(&timeouts, timer.as_mut()).await, secs(6));
        timeouts.response_ended();
        timeouts.write_blocked();
        tokio::time::advance(secs(29)).await;
        timeouts.write_blocked();
        assert_eq!(time_until_close(&timeouts, timer.as_mut()).await, secs(1));
        timeouts.write_progressed();
        assert_eq!(time_until_close(&timeouts, timer.as_mut()).await, secs(30));
    }

    /// An evicted connection that has received another request answers it first.
    #[tokio::test(start_paused = true)]
    async fn an_evicted_connection_closes_once_it_is_idle() {
        let timeouts = Timeouts::new(Bounds::default());
        let mut timer = pin!(tokio::time::sleep(secs(3_600)));
        let start = Instant::now();
        let head = Wait::Head { since: start };
        assert_eq!(timeouts.current_wait(), Some(head));
        timeouts.head_received();
        assert!(timeouts.current_wait().is_none() && !timeouts.evict(head));
        timeouts.response_ended();
        timeouts.write_blocked();
        assert_eq!(timeouts.current_wait(), None, "the response is still being sent");
        timeouts.write_progressed();
        assert!(timeouts.evict(Wait::Request { since: start }));
        timeouts.head_received();
        let mut next =
            || timeouts.poll_close(timer.as_mut(), &mut Context::from_waker(Waker::noop()));
        assert_eq!(next(), Poll::Pending);
        timeouts.response_ended();
        assert_eq!(next(), Poll::Ready(CloseReason::Evicted));
    }
}
