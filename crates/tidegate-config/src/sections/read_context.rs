//! What reading a plan depends on besides the merged tree, and what it is to be warned of.

use std::num::NonZeroU32;

use tidegate_llm::settings::resolve_concurrency_cap;

use crate::layers::environment::Environment;
use crate::values::setting::{Place, Source};
use crate::warning::Warning;

/// What providers are read with.
#[derive(Debug)]
pub(crate) struct ReadContext<'c> {
    pub(crate) environment: &'c Environment,
    /// The most calls under way at once, for values that nobody wrote down for this program.
    pub(crate) cap: NonZeroU32,
    /// The cap of the environment, if it is set: it bounds what adapts too.
    pub(crate) explicit_cap: Option<NonZeroU32>,
    pub(crate) warnings: Vec<Warning>,
    purpose: Purpose,
}

/// What a plan is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To run with it.
    Run,
    /// To tell all mistakes, also those that a program can run with.
    Check,
}

impl<'c> ReadContext<'c> {
    pub(crate) fn of(environment: &'c Environment) -> Self {
        let given = environment.get("MAX_CONCURRENT_THREADS");
        let (cap, warning) = resolve_concurrency_cap(given);
        let explicit_cap = given.map(|_| cap);
        let warnings = warning.map(Warning::Cap).into_iter().collect();
        Self { environment, cap, explicit_cap, warnings, purpose: Purpose::Run }
    }

    /// The context for a plan in which every mistake counts, also those that a program can run with.
    pub(crate) fn to_check(environment: &'c Environment) -> Self {
        Self { purpose: Purpose::Check, ..Self::of(environment) }
    }

    /// Whether mistakes count that a program can run with.
    pub(crate) fn is_check(&self) -> bool {
        self.purpose == Purpose::Check
    }

    /// Whether a value that cannot be used is replaced instead of refused.
    pub(crate) fn is_lenient(&self, place: Place) -> bool {
        match place.source {
            Source::Database | Source::Runtime => true,
            Source::Environment => {
                let variable = place.at.and_then(|at| self.environment.get_at(at));
                variable.is_some_and(|(name, _)| !name.starts_with("TIDEGATE_"))
            }
            _ => false,
        }
    }
}
