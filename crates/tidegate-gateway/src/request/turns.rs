//! A few slots that callers take in turns by network: whoever asks for many waits for itself.
//!
//! A plain semaphore is first come, first served, so one caller with many requests would make all
//! others wait for them.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// From so many waiters of a network on, those that have left are cleared away now and then.
const CROWD: usize = 64;

/// Slots, and who waits for one. Clones are the same slots.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    /// Networks that wait, in the order of their turns; each has an entry in `waiting`.
    ring: VecDeque<IpAddr>,
    waiting: HashMap<IpAddr, VecDeque<oneshot::Sender<Slot>>>,
}

/// A slot, until it is dropped. `None` once it is handed on.
#[derive(Debug)]
pub(crate) struct Slot(Option<Turns>);

impl Turns {
    pub(crate) fn new(slots: usize) -> Self {
        let state = State { free: slots, ring: VecDeque::new(), waiting: HashMap::new() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Waits for the turn of a network. Dropping the future gives back what it may have got.
    pub(crate) async fn take(&self, network: IpAddr) -> Slot {
        let granted = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Slot(Some(self.clone()));
            }
            state.wait(network)
        };
        match granted.await {
            Ok(slot) => slot,
            // Not while there are slots to wait for: a waiter is removed to be granted.
            Err(_) => std::future::pending().await,
        }
    }

    /// Hands a slot to the next one that still waits.
    fn hand_on(&self) {
        loop {
            let Some(next) = self.lock().next() else { return };
            match next.send(Slot(Some(self.clone()))) {
                Ok(()) => return,
                // It has left.
                Err(mut unwanted) => unwanted.0 = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait(&mut self, network: IpAddr) -> oneshot::Receiver<Slot> {
        let (sender, granted) = oneshot::channel();
        let waiting = self.waiting.entry(network).or_default();
        if waiting.is_empty() {
            self.ring.push_back(network);
        } else if waiting.len() >= CROWD && waiting.len().is_power_of_two() {
            waiting.retain(|waiter| !waiter.is_closed());
        }
        waiting.push_back(sender);
        granted
    }

    /// The first waiter of the network whose turn it is. If nobody waits the slot is free.
    fn next(&mut self) -> Option<oneshot::Sender<Slot>> {
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
        self.free += 1;
        None
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.hand_on();
        }
    }
}

#[cfg(test)]
impl Turns {
    /// How many slots are free.
    pub(crate) fn free(&self) -> usize {
        self.lock().free
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    const MANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));
    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

    /// Lets a task begin to wait.
    async fn begin<T>(task: &tokio::task::JoinHandle<T>) {
        for _ in 0..10 {
            assert!(!task.is_finished());
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_network_with_many_waits_for_itself() {
        let turns = Turns::new(1);
        let slot = turns.take(MANY).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let wait = |network| {
            let (turns, order) = (turns.clone(), order.clone());
            tokio::spawn(async move {
                let slot = turns.take(network).await;
                order.lock().unwrap().push(network);
                drop(slot);
            })
        };
        let mut tasks: Vec<_> = (0..100).map(|_| wait(MANY)).collect();
        begin(&tasks[99]).await;
        tasks.push(wait(ONE));
        begin(&tasks[100]).await;
        drop(slot);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(order.lock().unwrap().iter().position(|network| *network == ONE), Some(1));
        assert_eq!(turns.free(), 1);
    }

    #[tokio::test]
    async fn whoever_leaves_gives_its_slot_back_at_any_time() {
        let turns = Turns::new(1);
        let slot = turns.take(MANY).await;
        {
            let mut left = pin!(turns.take(ONE));
            assert!(poll_fn(|cx| Poll::Ready(left.as_mut().poll(cx).is_pending())).await);
            drop(slot);
            assert_eq!(turns.free(), 0, "it was granted, and is not taken yet");
        }
        assert_eq!(turns.free(), 1);
        let slot = turns.take(MANY).await;
        for _ in 0..10_000 {
            let mut left = pin!(turns.take(ONE));
            let _ = poll_fn(|cx| Poll::Ready(left.as_mut().poll(cx).is_pending())).await;
        }
        let kept = turns.lock().waiting[&ONE].len();
        assert!(kept <= CROWD, "{kept}");
        drop(slot);
        assert_eq!(turns.free(), 1);
        assert!(turns.lock().waiting.is_empty() && turns.lock().ring.is_empty());
    }
}
