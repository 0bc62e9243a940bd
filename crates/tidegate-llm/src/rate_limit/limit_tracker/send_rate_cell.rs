//! The rate of a limit, read by every call and rarely changed.

use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::super::send_rate::{Allowed, SendRate};

/// A rate behind a lock, with a copy that calls read without locking.
#[derive(Debug)]
pub(super) struct SendRateCell {
    send_rate: Mutex<SendRate>,
    published: ArcSwap<Published>,
}

/// The part of a rate that calls read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Published {
    /// Allowed amount, if known.
    pub(super) allowed: Option<Allowed>,
    /// Whether the rate changes with time.
    pub(super) is_changing: bool,
}

impl Published {
    const fn of(send_rate: &SendRate) -> Self {
        Self { allowed: send_rate.allowed(), is_changing: send_rate.is_changing() }
    }
}

impl SendRateCell {
    pub(super) fn new(send_rate: SendRate) -> Self {
        let published = ArcSwap::from_pointee(Published::of(&send_rate));
        Self { send_rate: Mutex::new(send_rate), published }
    }

    pub(super) fn read(&self) -> Published {
        **self.published.load()
    }

    /// Changes the rate and publishes it before the next change.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut SendRate) -> T) -> T {
        let mut send_rate = self.send_rate.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut send_rate);
        let published = Published::of(&send_rate);
        if published != self.read() {
            self.published.store(published.into());
        }
        result
    }

    /// Returns whether `allowed` is known and nothing changes with time.
    pub(super) fn is_known(&self, allowed: Allowed) -> bool {
        self.read() == Published { allowed: Some(allowed), is_changing: false }
    }
}
