//! The limits of a constraint, and the queues of those who wait for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::pacer::{Claim, Pacer};
use tidegate::{Engine, KeyBuf, Limiter, Policy};

use crate::plan::Constraint;
use crate::rate_limit::limit_name;
use crate::told::Dimension;

/// No call takes more tokens than this, and at one a minute it is still a debt that time can pay.
const MAX_DEBT: u64 = 10_000_000;

/// Limiters of one constraint. Buckets of the same constraint differ by their key.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) limiters: Vec<(Part, Limiter)>,
    pub(super) concurrency: Option<u64>,
}

/// What a limiter of a constraint counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Calls,
    Tokens,
}

impl Limits {
    /// The limiters of a constraint; one that cannot be made is left out, with a warning. They are
    /// made of valid numbers, so that does not happen.
    fn new(engine: &Engine, constraint: &Constraint) -> Self {
        let text = constraint.to_string();
        let mut limiters = Vec::new();
        let mut add = |part, what, limiter: Result<Limiter, BoxError>| match limiter {
            Ok(limiter) => limiters.push((part, limiter)),
            Err(error) => tracing::warn!(what, %error, "a limit of a plan is not kept"),
        };
        for dimension in Dimension::ALL {
            let Some(rate) = constraint.rate(dimension) else { continue };
            let policy = Policy::rate(rate);
            let (part, policy) = match dimension {
                Dimension::Requests => (Part::Calls, policy.capacity(constraint.burst())),
                _ => (Part::Tokens, policy.max_debt(MAX_DEBT)),
            };
            let policy = policy.build();
            add(part, dimension.name(), named(engine, dimension.name(), &text, policy));
        }
        let interval = constraint.min_interval();
        if !interval.is_zero() {
            let policy = Policy::per(1, interval).capacity(1).build();
            add(Part::Calls, "starts", named(engine, "starts", &text, policy));
        }
        if let Some(daily) = constraint.requests_per_day() {
            let name = limit_name("plan.day", &text);
            let amount = daily.requests().get().into();
            let limiter = engine.calendar(&name, amount, daily.schedule().clone());
            add(Part::Calls, "requests_per_day", limiter.map_err(Into::into));
        }
        let concurrency = constraint.concurrency().map(|limit| limit.get().into());
        Self { limiters, concurrency }
    }

    pub(super) fn claims(&self, key: &KeyBuf, tokens: u64) -> Vec<Claim> {
        let claim = |(part, limiter): &(Part, Limiter)| {
            limiter.claim(key, if *part == Part::Tokens { tokens } else { 1 })
        };
        self.limiters.iter().map(claim).collect()
    }

    /// Whether a limit of this name is about tokens.
    pub(super) fn is_of_tokens(&self, name: &str) -> bool {
        let found = self.limiters.iter().find(|(_, limiter)| limiter.limit().name() == name);
        found.is_some_and(|(part, _)| *part == Part::Tokens)
    }
}

type BoxError = Box<dyn std::error::Error>;

fn named(
    engine: &Engine,
    what: &str,
    constraint: &str,
    policy: Result<Policy, tidegate::PolicyError>,
) -> Result<Limiter, BoxError> {
    Ok(engine.limiter(&limit_name(&format!("plan.{what}"), constraint), policy?)?)
}

/// Limits by constraint, and a queue for each key that somebody uses.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    limits: Mutex<HashMap<String, Arc<Limits>>>,
    queues: Mutex<HashMap<(KeyBuf, String), Queue>>,
}

#[derive(Debug)]
struct Queue {
    pacer: Pacer,
    users: usize,
}

/// A queue in use; it is forgotten when nobody uses it. What was spent is kept by the store.
#[derive(Debug)]
pub(super) struct InUse {
    shelf: Arc<Shelf>,
    name: (KeyBuf, String),
    pub(super) pacer: Pacer,
    pub(super) limits: Arc<Limits>,
}

impl Shelf {
    /// The queue of a key under a constraint.
    pub(super) fn queue(
        self: &Arc<Self>,
        engine: &Engine,
        constraint: &Constraint,
        key: KeyBuf,
    ) -> InUse {
        let text = constraint.to_string();
        let limits = self
            .limits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(text.clone())
            .or_insert_with(|| Arc::new(Limits::new(engine, constraint)))
            .clone();
        let name = (key, text);
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(name.clone()).or_insert_with(|| {
            let builder = Pacer::builder(engine).max_waiting(usize::MAX);
            let builder = match limits.concurrency {
                Some(limit) => builder.concurrency(limit),
                None => builder,
            };
            Queue { pacer: builder.build(), users: 0 }
        });
        queue.users += 1;
        let pacer = queue.pacer.clone();
        InUse { shelf: self.clone(), name, pacer, limits }
    }

    /// How many keys are in use.
    pub(super) fn len(&self) -> usize {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl InUse {
    pub(super) const fn key(&self) -> &KeyBuf {
        &self.name.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut queues = self.shelf.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get_mut(&self.name) {
            queue.users -= 1;
            if queue.users == 0 {
                queues.remove(&self.name);
            }
        }
    }
}
