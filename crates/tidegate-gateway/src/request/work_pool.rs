//! Runs work on large bodies outside the threads that serve connections.
//!
//! A runtime thread serves many connections, so long work runs on blocking threads. Only a few run
//! at once, scheduled fairly by network, so that callers cannot occupy all processors. The largest
//! bodies have a queue of their own, so that others do not wait behind them. Small bodies are
//! processed inline.

use std::net::IpAddr;
use std::thread::available_parallelism;

use tidegate_http::identity::{IPV6_CLIENT_BITS, client_network};
use tokio::task::spawn_blocking;

use crate::request::fair_semaphore::FairSemaphore;

/// Maximum body size that is processed inline: 32 KiB. The slowest text takes less than 10 ms.
const MAX_INLINE: usize = 32 * 1_024;
/// Maximum body size of the medium queue: 1 MiB. Larger bodies use the large queue.
const MAX_MEDIUM: usize = 1_024 * 1_024;
/// Maximum number of concurrent large jobs. They also use memory while they run.
const MAX_LARGE_JOBS: usize = 1;

/// The work panicked, or the runtime is shutting down.
#[derive(Debug, thiserror::Error)]
#[error("processing a large body failed: {0}")]
pub(crate) struct WorkFailed(#[source] Box<dyn std::error::Error + Send + Sync>);

/// Queues for work on large bodies.
#[derive(Debug)]
pub(crate) struct WorkPool {
    medium: FairSemaphore,
    large: FairSemaphore,
}

impl Default for WorkPool {
    fn default() -> Self {
        let medium = available_parallelism().map_or(1, usize::from).clamp(2, 8);
        Self { medium: FairSemaphore::new(medium), large: FairSemaphore::new(MAX_LARGE_JOBS) }
    }
}

impl WorkPool {
    /// Whether work on `size` bytes runs on another thread.
    pub(crate) const fn is_offloaded(size: usize) -> bool {
        size > MAX_INLINE
    }

    /// Runs work on `size` bytes of a peer. Dropping the future cancels the work while it is
    /// queued. Once started, it runs to its end and keeps its data and its permit until then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        peer: IpAddr,
        size: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkFailed> {
        if !Self::is_offloaded(size) {
            return Ok(work());
        }
        // Boxed to keep the future small: most calls do not need it.
        Box::pin(self.run_blocking(peer, size, work)).await
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        peer: IpAddr,
        size: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkFailed> {
        let queue = if size > MAX_MEDIUM { &self.large } else { &self.medium };
        let permit = queue.acquire(client_network(peer, IPV6_CLIENT_BITS).addr()).await;
        let work = spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        });
        work.await.map_err(|error| WorkFailed(error.into()))
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
    async fn only_small_work_runs_on_the_calling_thread() {
        let (work, here) = (WorkPool::default(), thread::current().id());
        for (size, is_here) in
            [(MAX_INLINE, true), (MAX_INLINE + 1, false), (MAX_MEDIUM + 1, false)]
        {
            let there = work.run(PEER, size, || thread::current().id()).await.unwrap();
            assert_eq!(there == here, is_here, "{size}");
        }
    }

    #[tokio::test]
    async fn large_work_is_serialized_and_does_not_block_medium_work() {
        let work = Arc::new(WorkPool::default());
        let start = |size: usize| {
            let (sender, receiver) = mpsc::channel::<()>();
            let work = work.clone();
            let task =
                tokio::spawn(async move { work.run(PEER, size, move || receiver.recv()).await });
            (sender, task)
        };
        let (first, first_task) = start(MAX_MEDIUM + 1);
        let (second, second_task) = start(MAX_MEDIUM + 1);
        while work.large.available() > 0 {
            yield_now().await;
        }
        drop(second);
        work.run(PEER, MAX_INLINE + 1, || ()).await.unwrap();
        assert!(!second_task.is_finished(), "still queued");
        // The first job continues after its future was dropped, and keeps its permit.
        first_task.abort();
        assert!(first_task.await.unwrap_err().is_cancelled());
        assert_eq!(work.large.available(), 0);
        drop(first);
        assert!(second_task.await.unwrap().unwrap().is_err());
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_releases_the_permit() {
        let work = WorkPool::default();
        for _ in 0..2 {
            let panicked: Result<(), WorkFailed> =
                work.run(PEER, MAX_MEDIUM + 1, || panic!("test")).await;
            panicked.unwrap_err();
        }
    }
}
