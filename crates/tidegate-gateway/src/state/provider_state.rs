//! The desk of a provider: what lives on when the configuration changes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_llm::rate_limit::AccountError;
use tidegate_providers::Provider;
use tokio::time::Instant;

use crate::state::accounts::{Accounts, Make, Shape};

/// For how long a limit that somebody waited for is called the one that binds.
const RECENT: Duration = Duration::from_secs(60);

/// What is known of a provider, whatever its configuration.
pub(crate) struct Desk {
    provider: Provider,
    accounts: Accounts,
    queued: Mutex<BTreeSet<(Instant, u64)>>,
    tickets: AtomicU64,
    /// What the last one who waited has waited for.
    binding: Mutex<Option<(&'static str, Instant)>>,
}

/// A place among those who are held, until it is dropped.
pub(crate) struct Ticket {
    desk: Arc<Desk>,
    place: (Instant, u64),
}

impl Desk {
    pub(crate) fn open(make: Make) -> Result<Self, AccountError> {
        let shape = Shape::of(&make.upstream);
        Ok(Self {
            provider: make.upstream.name.clone(),
            accounts: Accounts::new(make, shape)?,
            queued: Mutex::default(),
            tickets: AtomicU64::new(0),
            binding: Mutex::default(),
        })
    }

    pub(crate) const fn provider(&self) -> &Provider {
        &self.provider
    }

    pub(crate) const fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Somebody is held, since then.
    pub(crate) fn queue(self: &Arc<Self>, since: Instant) -> Ticket {
        let place = (since, self.tickets.fetch_add(1, Ordering::Relaxed));
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).insert(place);
        Ticket { desk: self.clone(), place }
    }

    /// How many are held, and for how long the first of them.
    pub(crate) fn queued(&self) -> (usize, Duration) {
        let queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = queued.first().map_or(Duration::ZERO, |(since, _)| since.elapsed());
        (queued.len(), oldest)
    }

    /// Somebody has waited for this limit.
    pub(crate) fn bound(&self, limit: &'static str) {
        let mut binding = self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        *binding = Some((limit, Instant::now()));
    }

    /// The limit that binds, if one does.
    pub(crate) fn binding(&self) -> Option<&'static str> {
        let binding = *self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        binding.filter(|(_, when)| when.elapsed() < RECENT).map(|(limit, _)| limit)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queued = self.desk.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.remove(&self.place);
    }
}
