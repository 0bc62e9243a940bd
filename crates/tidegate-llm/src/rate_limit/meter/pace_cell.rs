//! The pace of a limit, which every call reads and few change.

use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::super::pace::{Allowed, Pace};

/// A pace behind a lock, and what calls read of it without one.
#[derive(Debug)]
pub(super) struct PaceCell {
    pace: Mutex<Pace>,
    published: ArcSwap<Published>,
}

/// What calls read of a pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Published {
    /// What is allowed, if that is known.
    pub(super) allowed: Option<Allowed>,
    /// Whether it changes with time.
    pub(super) is_moving: bool,
}

impl Published {
    const fn of(pace: &Pace) -> Self {
        Self { allowed: pace.allowed(), is_moving: pace.is_moving() }
    }
}

impl PaceCell {
    pub(super) fn new(pace: Pace) -> Self {
        let published = ArcSwap::from_pointee(Published::of(&pace));
        Self { pace: Mutex::new(pace), published }
    }

    pub(super) fn read(&self) -> Published {
        **self.published.load()
    }

    /// Changes the pace, and publishes it before the next change.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Pace) -> T) -> T {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut pace);
        let published = Published::of(&pace);
        if published != self.read() {
            self.published.store(published.into());
        }
        result
    }

    /// Sets what is allowed. Whether that is news.
    pub(super) fn allow(&self, allowed: Allowed) -> bool {
        let known = Published { allowed: Some(allowed), is_moving: false };
        self.read() != known && self.change(|pace| pace.allow(allowed))
    }
}
