//! The limits of one constraint: what they count, what they are claimed for, what was used.

use std::sync::Arc;

use tidegate::pacer::Pacer;
use tidegate::{Charge, Engine, KeyBuf, Limiter, MemoryStore, Policy};
use tidegate_providers::{Dimension, Usage};

use crate::plan::{Constraint, Plan};
use crate::rate_limit::limit_name;

/// No call takes more tokens than this, and at one a minute it is still a debt that time can pay.
const MAX_DEBT: u64 = 10_000_000;

/// Limiters of one constraint. Buckets of the same constraint differ by their key.
///
/// They have an engine of their own, so that their names are forgotten with them. On the store a
/// name still means one policy, since it is made of the constraint: whoever makes the same limits
/// again finds their buckets as they were.
#[derive(Debug)]
pub(super) struct Limits {
    engine: Engine,
    limiters: Vec<(Dimension, Limiter)>,
    concurrency: Option<u64>,
}

impl Limits {
    /// The limiters of a constraint; one that cannot be made is left out, with a warning. They are
    /// made of valid numbers, so that does not happen.
    pub(super) fn new(store: &Arc<MemoryStore>, constraint: &Constraint) -> Self {
        let engine = Engine::on(store.clone());
        let text = constraint.to_string();
        let mut limiters = Vec::new();
        let mut add = |dimension, what, limiter: Result<Limiter, BoxError>| match limiter {
            Ok(limiter) => limiters.push((dimension, limiter)),
            Err(error) => tracing::warn!(what, %error, "a limit of a plan is not kept"),
        };
        for dimension in Dimension::ALL {
            let Some(rate) = constraint.rate(dimension) else { continue };
            let policy = Policy::rate(rate);
            let policy = if dimension.is_of_tokens() {
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
        let concurrency = constraint.concurrency().map(|limit| limit.get().into());
        Self { engine, limiters, concurrency }
    }

    /// A queue for those who wait for these limits.
    pub(super) fn pacer(&self) -> Pacer {
        let builder = Pacer::builder(&self.engine).max_waiting(usize::MAX);
        match self.concurrency {
            Some(limit) => builder.concurrency(limit).build(),
            None => builder.build(),
        }
    }

    /// What a command of this plan takes of each limit.
    pub(super) fn charges<'a>(&self, key: &'a KeyBuf, plan: &Plan) -> Vec<Charge<'a>> {
        // A charge that is beyond all debt would be refused, and its command go unlimited.
        let tokens = |dimension| plan.reserved(dimension).min(MAX_DEBT);
        let cost = |dimension: Dimension| {
            if dimension.is_of_tokens() { tokens(dimension) } else { 1 }
        };
        let charge =
            |(dimension, limiter): &(Dimension, Limiter)| limiter.charge(key, cost(*dimension));
        self.limiters.iter().map(charge).collect()
    }

    /// What was used of each limit, in the order of the charges.
    pub(super) fn used(&self, usage: &Usage) -> Vec<u64> {
        let used = |(dimension, _): &(Dimension, Limiter)| match dimension {
            Dimension::Requests | Dimension::RequestsPerDay => 1,
            Dimension::Tokens => usage.total(),
            Dimension::InputTokens => usage.input,
            Dimension::OutputTokens => usage.output,
        };
        self.limiters.iter().map(used).collect()
    }

    /// Whether a limit of this name is about tokens.
    pub(super) fn is_of_tokens(&self, name: &str) -> bool {
        let found = self.limiters.iter().find(|(_, limiter)| limiter.limit().name() == name);
        found.is_some_and(|(dimension, _)| dimension.is_of_tokens())
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
