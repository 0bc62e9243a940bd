//! A semaphore that is fair between networks.
//!
//! A plain semaphore is first come, first served, so one caller with many requests would delay all
//! others. Here networks take turns, and a busy network only delays itself.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Number of waiters of a network from which cancelled ones are cleaned up occasionally.
const CLEANUP_THRESHOLD: usize = 64;

/// A semaphore with round-robin order between networks. Clones share its permits.
#[derive(Clone, Debug)]
pub(crate) struct FairSemaphore(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    available: usize,
    /// Waiting networks in round-robin order; each has an entry in `waiting`.
    ring: VecDeque<IpAddr>,
    waiting: HashMap<IpAddr, VecDeque<oneshot::Sender<FairPermit>>>,
}

/// A permit, released when dropped. `None` once it is handed to another waiter.
#[derive(Debug)]
pub(crate) struct FairPermit(Option<FairSemaphore>);

impl FairSemaphore {
    pub(crate) fn new(permits: usize) -> Self {
        let state = State { available: permits, ring: VecDeque::new(), waiting: HashMap::new() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Waits for a permit. Dropping the future returns a permit that was already granted.
    pub(crate) async fn acquire(&self, network: IpAddr) -> FairPermit {
        let granted = {
            let mut state = self.lock();
            if state.available > 0 {
                state.available -= 1;
                return FairPermit(Some(self.clone()));
            }
            state.wait(network)
        };
        match granted.await {
            Ok(permit) => permit,
            // Unreachable: a waiter is only removed to be granted a permit.
            Err(_) => std::future::pending().await,
        }
    }

    /// Hands the permit to the next active waiter.
    fn release(&self) {
        loop {
            let Some(next) = self.lock().next() else { return };
            match next.send(FairPermit(Some(self.clone()))) {
                Ok(()) => return,
                // The waiter was cancelled.
                Err(mut returned) => returned.0 = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait(&mut self, network: IpAddr) -> oneshot::Receiver<FairPermit> {
        let (sender, granted) = oneshot::channel();
        let waiting = self.waiting.entry(network).or_default();
        if waiting.is_empty() {
            self.ring.push_back(network);
        } else if waiting.len() >= CLEANUP_THRESHOLD && waiting.len().is_power_of_two() {
            waiting.retain(|waiter| !waiter.is_closed());
        }
        waiting.push_back(sender);
        granted
    }

    /// Returns the first waiter of the next network. If there is none, the permit becomes
    /// available.
    fn next(&mut self) -> Option<oneshot::Sender<FairPermit>> {
        while let Some(network) = self.ring.pop_front() {
            let Some(waiting) = self.waiting.get_mut(&network) else { continue };
            let first = waiting.pop_front();
            if waiting.is_empty() {
                self.waiting.remove(&network);
            } else {
                self.ring.push_back(network);
            }
            if first.is_some() {
                return first;
            }
        }
        self.available += 1;
        None
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        if let Some(semaphore) = self.0.take() {
            semaphore.release();
        }
    }
}

#[cfg(test)]
impl FairSemaphore {
    /// Number of available permits.
    pub(crate) fn available(&self) -> usize {
        self.lock().available
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    const BUSY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));
    const QUIET: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

    /// Yields until a task has started to wait.
    async fn let_wait<T>(task: &tokio::task::JoinHandle<T>) {
        for _ in 0..10 {
            assert!(!task.is_finished());
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_busy_network_does_not_delay_others() {
        let semaphore = FairSemaphore::new(1);
        let permit = semaphore.acquire(BUSY).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let wait = |network| {
            let (semaphore, order) = (semaphore.clone(), order.clone());
            tokio::spawn(async move {
                let permit = semaphore.acquire(network).await;
                order.lock().unwrap().push(network);
                drop(permit);
            })
        };
        let mut tasks: Vec<_> = (0..100).map(|_| wait(BUSY)).collect();
        let_wait(&tasks[99]).await;
        tasks.push(wait(QUIET));
        let_wait(&tasks[100]).await;
        drop(permit);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(order.lock().unwrap().iter().position(|network| *network == QUIET), Some(1));
        assert_eq!(semaphore.available(), 1);
    }

    #[tokio::test]
    async fn dropped_waiters_return_their_permits() {
        let semaphore = FairSemaphore::new(1);
        let permit = semaphore.acquire(BUSY).await;
        {
            let mut left = pin!(semaphore.acquire(QUIET));
            assert!(poll_fn(|cx| Poll::Ready(left.as_mut().poll(cx).is_pending())).await);
            drop(permit);
            assert_eq!(semaphore.available(), 0, "granted but not received yet");
        }
        assert_eq!(semaphore.available(), 1);
        let permit = semaphore.acquire(BUSY).await;
        for _ in 0..10_000 {
            let mut left = pin!(semaphore.acquire(QUIET));
            let _ = poll_fn(|cx| Poll::Ready(left.as_mut().poll(cx).is_pending())).await;
        }
        let kept = semaphore.lock().waiting[&QUIET].len();
        assert!(kept <= CLEANUP_THRESHOLD, "{kept}");
        drop(permit);
        assert_eq!(semaphore.available(), 1);
        assert!(semaphore.lock().waiting.is_empty() && semaphore.lock().ring.is_empty());
    }
}
