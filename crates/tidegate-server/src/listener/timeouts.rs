//! How long a connection may still keep the door waiting.
//!
//! The stream tells when bytes come and when they are not taken, the service when a request begins
//! and ends. hyper has a time-out for heads, but it runs while a connection is idle as well.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use super::bounds::Bounds;

/// The timeouts with one connection.
#[derive(Debug)]
pub(crate) struct Timeouts {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    awaited: Awaited,
    /// Until when some bytes of an answer have to be taken.
    write: Option<Instant>,
}

/// What the caller has to send next.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    /// The rest of a head.
    Head { until: Instant },
    /// Another request. If its first bytes came while the last one was answered, this bounds the
    /// rest of its head too.
    Request { until: Instant },
    /// Nothing: a request is being answered, and whoever does so waits for its body.
    Nothing,
}

impl Timeouts {
    /// With a connection that begins now.
    pub(crate) fn new(bounds: Bounds) -> Self {
        let awaited = Awaited::Head { until: Instant::now() + bounds.head };
        Self { bounds, state: Mutex::new(State { awaited, write: None }) }
    }

    /// Bytes have come.
    pub(crate) fn read(&self) {
        let mut state = self.state();
        if let Awaited::Request { .. } = state.awaited {
            state.awaited = Awaited::Head { until: Instant::now() + self.bounds.head };
        }
    }

    /// A head is complete.
    pub(crate) fn asked(&self) {
        self.state().awaited = Awaited::Nothing;
    }

    /// A request has its answer.
    pub(crate) fn answered(&self) {
        self.state().awaited = Awaited::Request { until: Instant::now() + self.bounds.idle };
    }

    /// Bytes of an answer were taken.
    pub(crate) fn wrote(&self) {
        self.state().write = None;
    }

    /// Bytes of an answer cannot be sent for now.
    pub(crate) fn stuck(&self) {
        let until = || Instant::now() + self.bounds.write;
        self.state().write.get_or_insert_with(until);
    }

    /// Ready when timeouts is at its end. The timer may be any, as long as it is always the same.
    pub(crate) fn poll_end(&self, mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.until() else { return Poll::Pending };
        if until < timer.deadline() {
            timer.as_mut().reset(until);
        }
        // The end moves away with every request. The timer does not follow each time: it rings too
        // early now and then, and is set again.
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
        Poll::Pending
    }

    fn until(&self) -> Option<Instant> {
        let state = self.state();
        let read = match state.awaited {
            Awaited::Head { until } | Awaited::Request { until } => Some(until),
            Awaited::Nothing => None,
        };
        read.into_iter().chain(state.write).min()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Waits for the end in virtual time, and says how long that took.
    async fn end(timeouts: &Timeouts, mut timer: Pin<&mut Sleep>) -> Duration {
        let start = Instant::now();
        poll_fn(|cx| timeouts.poll_end(timer.as_mut(), cx)).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_own_bound() {
        let timeouts = Timeouts::new(Bounds::default());
        let mut timer = pin!(tokio::time::sleep(secs(1)));
        assert_eq!(end(&timeouts, timer.as_mut()).await, secs(10));
        timeouts.asked();
        let never = tokio::time::timeout(secs(3_600), end(&timeouts, timer.as_mut())).await;
        assert!(never.is_err());
        timeouts.answered();
        assert_eq!(end(&timeouts, timer.as_mut()).await, secs(60));
        timeouts.answered();
        tokio::time::advance(secs(50)).await;
        timeouts.read();
        tokio::time::advance(secs(4)).await;
        timeouts.read();
        assert_eq!(end(&timeouts, timer.as_mut()).await, secs(6));
        timeouts.answered();
        timeouts.stuck();
        tokio::time::advance(secs(9)).await;
        timeouts.stuck();
        assert_eq!(end(&timeouts, timer.as_mut()).await, secs(1));
        timeouts.wrote();
        assert_eq!(end(&timeouts, timer.as_mut()).await, secs(50));
    }
}
