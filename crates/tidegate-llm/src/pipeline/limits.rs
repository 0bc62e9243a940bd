//! Limiters of one constraint: charges before a call, actual usage after it.

use std::sync::Arc;

use tidegate::pacer::Pacer;
use tidegate::{Charge, Engine, KeyBuf, Limiter, MemoryStore, Policy};
use tidegate_providers::{Dimension, Usage};

use crate::plan::{Constraint, Plan};
use crate::rate_limit::limit_name;

/// Maximum debt of a token bucket. No call uses more tokens, and even at one token per minute it
/// can be paid back.
const MAX_DEBT: u64 = 10_000_000;

/// Limiters of one constraint. Buckets of the same constraint differ by their key.
///
/// They have an engine of their own, so that their names are freed when they are dropped. Names in
/// the store are derived from the constraint, so limiters that are created again find their buckets
/// unchanged.
#[derive(Debug)]
pub(super) struct Limits {
    engine: Engine,
    limiters: Vec<(Dimension, Limiter)>,
    concurrency: Option<u64>,
}

impl Limits {
    /// Creates the limiters of a constraint. Logs a warning and skips a limiter that cannot be
    /// created; this does not happen with a valid constraint.
    pub(super) fn new(store: &Arc<MemoryStore>, constraint: &Constraint) -> Self {
        let engine = Engine::on(store.clone());
        let text = constraint.to_string();
        let mut limiters = Vec::new();
        let mut add = |dimension, what, limiter: Result<Limiter, BoxError>| match limiter {
            Ok(limiter) => limiters.push((dimension, limiter)),
            Err(error) => {
                tracing::warn!(what, %error, "limiter creation failed; limit not enforced");
            }
        };
        for dimension in Dimension::ALL {
            let Some(rate) = constraint.rate(dimension) else { continue };
            let policy = Policy::rate(rate);
            let policy = if dimension.counts_tokens() {
                policy.max_debt(MAX_DEBT)
            } else {
                policy.capacity(constraint.burst())
            };
            let what = dimension.name();
            add(dimension, what, named(&engine, what, &text, policy.build()));
        }
        let interval = constraint.min_interval();
        if !interval.is_zero() {
            let policy = Policy::per(1, interval).capacity(1).build();
            add(Dimension::Requests, "starts", named(&engine, "starts", &text, policy));
        }
        if let Some(daily) = constraint.daily() {
            let name = limit_name("plan.day", &text);
            let amount = daily.requests().get().into();
            let limiter = engine.calendar(&name, amount, daily.schedule().clone());
            let dimension = Dimension::RequestsPerDay;
            add(dimension, dimension.name(), limiter.map_err(Into::into));
        }
        // Of a wait for both, the part for requests is what goes beyond the tokens (R97).
        limiters.sort_by_key(|(dimension, _)| !dimension.counts_tokens());
        let concurrency = constraint.concurrency().map(|limit| limit.get().into());
        Self { engine, limiters, concurrency }
    }

    /// Creates a queue for commands that wait for these limits.
    pub(super) fn pacer(&self) -> Pacer {
        let builder = Pacer::builder(&self.engine).max_waiting(usize::MAX);
        match self.concurrency {
            Some(limit) => builder.concurrency(limit).build(),
            None => builder.build(),
        }
    }

    /// Returns the charges of a command with this plan.
    pub(super) fn charges<'a>(&self, key: &'a KeyBuf, plan: &Plan) -> Vec<Charge<'a>> {
        // A charge above the maximum debt would be rejected, and its command not limited.
        let tokens = |dimension| plan.reserved(dimension).min(MAX_DEBT);
        let cost = |dimension: Dimension| {
            if dimension.counts_tokens() { tokens(dimension) } else { 1 }
        };
        let charge =
            |(dimension, limiter): &(Dimension, Limiter)| limiter.charge(key, cost(*dimension));
        self.limiters.iter().map(charge).collect()
    }

    /// Returns the actual usage of each limit, in the order of the charges.
    pub(super) fn used(&self, usage: &Usage) -> Vec<u64> {
        let used = |(dimension, _): &(Dimension, Limiter)| match dimension {
            Dimension::Requests | Dimension::RequestsPerDay => 1,
            Dimension::Tokens => usage.total(),
            Dimension::InputTokens => usage.input,
            Dimension::OutputTokens => usage.output,
        };
        self.limiters.iter().map(used).collect()
    }

    /// Returns whether the limit with this name counts tokens.
    pub(super) fn counts_tokens(&self, name: &str) -> bool {
        let found = self.limiters.iter().find(|(_, limiter)| limiter.limit().name() == name);
        found.is_some_and(|(dimension, _)| dimension.counts_tokens())
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
