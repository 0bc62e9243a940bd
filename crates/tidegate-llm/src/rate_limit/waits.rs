//! Warnings of waits: one for each call in a library, one a minute for each scope in a server.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate::Time;

use crate::scope::Scope;

/// How often a server warns of the same scope.
const MINUTE: Duration = Duration::from_secs(60);
/// So many scopes are told apart; the waits of others are told as they come.
const MAX_SCOPES: usize = 1_024;

/// Warns of waits.
#[derive(Debug)]
pub(super) struct Waits {
    /// `None`: each of them.
    gathered: Option<Mutex<HashMap<Scope, Gathered>>>,
}

/// Waits of a scope since they were last told.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    told: Time,
    count: u64,
    worst: Duration,
}

impl Waits {
    pub(super) const fn each_call() -> Self {
        Self { gathered: None }
    }

    pub(super) fn each_minute() -> Self {
        Self { gathered: Some(Mutex::default()) }
    }

    /// A call of this scope waited so long.
    pub(super) fn waited(&self, scope: &Scope, wait: Duration, now: Time) {
        let provider = scope.provider();
        let Some(gathered) = &self.gathered else {
            let seconds = wait.as_secs_f64();
            tracing::warn!(
                "Rate limited for provider '{provider}'. Waited {seconds:.2}s for token."
            );
            return;
        };
        let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if gathered.len() >= MAX_SCOPES && !gathered.contains_key(scope) {
            gathered.retain(|_, waits| now.since(waits.told) < MINUTE);
        }
        let first = Gathered { told: now, count: 0, worst: Duration::ZERO };
        let fresh = !gathered.contains_key(scope);
        let waits = gathered.entry(scope.clone()).or_insert(first);
        waits.count += 1;
        waits.worst = waits.worst.max(wait);
        if !fresh && now.since(waits.told) < MINUTE {
            return;
        }
        let (count, worst) = (waits.count, waits.worst.as_secs_f64());
        *waits = first;
        drop(gathered);
        tracing::warn!(
            %scope,
            "Rate limited for provider '{provider}': {count} calls waited, {worst:.2}s at worst."
        );
    }
}
