//! Warnings of waits: one for each call in a library, one a minute for each scope in a server.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate::Time;

use crate::call::Scope;

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
        let Some(Gathered { count, worst, .. }) = gather(&mut gathered, scope, wait, now) else {
            return;
        };
        drop(gathered);
        let worst = worst.as_secs_f64();
        tracing::warn!(
            %scope,
            "Rate limited for provider '{provider}': {count} calls waited, {worst:.2}s at worst."
        );
    }
}

/// Counts a wait, and says what there is to tell of its scope now, if there is.
fn gather(
    gathered: &mut HashMap<Scope, Gathered>,
    scope: &Scope,
    wait: Duration,
    now: Time,
) -> Option<Gathered> {
    let none = Gathered { told: now, count: 0, worst: Duration::ZERO };
    let Some(waits) = gathered.get_mut(scope) else {
        if gathered.len() >= MAX_SCOPES {
            gathered.retain(|_, waits| now.since(waits.told) < MINUTE);
        }
        if gathered.len() < MAX_SCOPES {
            gathered.insert(scope.clone(), none);
        }
        return Some(Gathered { count: 1, worst: wait, ..none });
    };
    waits.count += 1;
    waits.worst = waits.worst.max(wait);
    let is_due = now.since(waits.told) >= MINUTE;
    is_due.then(|| mem::replace(waits, none))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_providers::Credential;

    #[test]
    fn scopes_beyond_the_bound_are_told_as_they_come() {
        let mut gathered = HashMap::new();
        let scope =
            |number| Scope::new("openai", &Credential::none()).model(&format!("model-{number}"));
        let mut told = |number, now| gather(&mut gathered, &scope(number), MINUTE, now).is_some();
        let (start, second) = (Time::from_nanos(0), Duration::from_secs(1));
        for number in 0..2 * MAX_SCOPES {
            assert!(told(number, start), "the first of {number}");
        }
        assert!(!told(0, start.after(second)), "gathered");
        assert!(told(2 * MAX_SCOPES - 1, start.after(second)), "there was no room for it");
        assert!(told(2 * MAX_SCOPES - 1, start.after(MINUTE)), "now there is");
        assert!(!told(2 * MAX_SCOPES - 1, start.after(MINUTE + second)));
        assert!(gathered.len() <= MAX_SCOPES);
    }
}
