//! Work on large bodies, away from the threads that serve connections.
//!
//! A thread that serves connections serves many. What takes long is done by threads of its own, few at
//! once, so that callers cannot occupy the processors with it, and in turns by network. The largest
//! bodies have a queue of their own: others do not wait behind them. A body that is small enough is worked on at once.

use std::net::IpAddr;
use std::thread::available_parallelism;

use tidegate_http::identity::{IPV6_CLIENT_BITS, client_network};
use tokio::task::spawn_blocking;

use crate::request::turns::Turns;

/// Work on so many bytes is done at once: 32 KiB. The slowest text takes less than 10 ms.
const INLINE: usize = 32 * 1_024;
/// More bytes than this are worked on in the queue of the largest: 1 MiB.
const MEDIUM: usize = 1_024 * 1_024;
/// How many of the largest at once: they also take memory while they are worked on.
const MOST_LARGE: usize = 1;

/// The work was not done: it panicked, or the runtime ends.
#[derive(Debug, thiserror::Error)]
#[error("a large body was not read: {0}")]
pub(crate) struct NotDone(#[source] Box<dyn std::error::Error + Send + Sync>);

/// Where heavy work waits for its turn.
#[derive(Debug)]
pub(crate) struct HeavyWork {
    medium: Turns,
    large: Turns,
}

impl Default for HeavyWork {
    fn default() -> Self {
        let medium = available_parallelism().map_or(1, usize::from).clamp(2, 8);
        Self { medium: Turns::new(medium), large: Turns::new(MOST_LARGE) }
    }
}

impl HeavyWork {
    /// Whether work on so many bytes is heavy.
    pub(crate) const fn is_heavy(size: usize) -> bool {
        size > INLINE
    }

    /// Does work on so many bytes of a peer. If it is given up while it waits it is not done; if it has begun it
    /// goes on to its end, and holds what it was given until then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        peer: IpAddr,
        size: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        if !Self::is_heavy(size) {
            return Ok(work());
        }
        // In a box: most calls need no room for it.
        Box::pin(self.run_elsewhere(peer, size, work)).await
    }

    async fn run_elsewhere<T: Send + 'static>(
        &self,
        peer: IpAddr,
        size: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let queue = if size > MEDIUM { &self.large } else { &self.medium };
        let slot = queue.take(client_network(peer, IPV6_CLIENT_BITS).addr()).await;
        let work = spawn_blocking(move || {
            let done = work();
            drop(slot);
            done
        });
        work.await.map_err(|error| NotDone(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::{Arc, mpsc};
    use std::thread;

    use tokio::task::yield_now;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn small_work_is_done_on_this_thread_and_large_work_is_not() {
        let (work, here) = (HeavyWork::default(), thread::current().id());
        for (size, is_here) in [(INLINE, true), (INLINE + 1, false), (MEDIUM + 1, false)] {
            let there = work.run(PEER, size, || thread::current().id()).await.unwrap();
            assert_eq!(there == here, is_here, "{size}");
        }
    }

    #[tokio::test]
    async fn the_largest_go_one_by_one_and_others_do_not_wait_for_them() {
        let work = Arc::new(HeavyWork::default());
        let start = |size: usize| {
            let (sender, receiver) = mpsc::channel::<()>();
            let work = work.clone();
            let task =
                tokio::spawn(async move { work.run(PEER, size, move || receiver.recv()).await });
            (sender, task)
        };
        let (first, first_task) = start(MEDIUM + 1);
        let (second, second_task) = start(MEDIUM + 1);
        while work.large.free() > 0 {
            yield_now().await;
        }
        drop(second);
        work.run(PEER, INLINE + 1, || ()).await.unwrap();
        assert!(!second_task.is_finished(), "its turn has not come");
        // Given up, the first one goes on and keeps its turn.
        first_task.abort();
        assert!(first_task.await.unwrap_err().is_cancelled());
        assert_eq!(work.large.free(), 0);
        drop(first);
        assert!(second_task.await.unwrap().unwrap().is_err());
    }

    #[tokio::test]
    async fn work_that_panics_is_an_error_and_frees_its_turn() {
        let work = HeavyWork::default();
        for _ in 0..2 {
            let panicked: Result<(), NotDone> =
                work.run(PEER, MEDIUM + 1, || panic!("of a test")).await;
            panicked.unwrap_err();
        }
    }
}
