//! Context for reading the merged tree: the environment, the purpose and the collected warnings.

use std::num::NonZeroU32;

use tidegate_llm::settings::resolve_concurrency_cap;

use crate::layers::environment::Environment;
use crate::values::setting::{Position, Source};
use crate::warning::Warning;

/// Context passed to the readers of sections.
#[derive(Debug)]
pub(crate) struct ReadContext<'c> {
    pub(crate) environment: &'c Environment,
    /// Maximum of concurrency limits that do not come from the file, a flag or a `TIDEGATE_`
    /// variable.
    pub(crate) cap: NonZeroU32,
    /// `MAX_CONCURRENT_THREADS`, if it is set. It also limits auto-tuning.
    pub(crate) explicit_cap: Option<NonZeroU32>,
    pub(crate) warnings: Vec<Warning>,
    purpose: Purpose,
}

/// What the configuration is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To run: errors that do not prevent a start become warnings.
    Run,
    /// To check: reports every error.
    Check,
}

impl<'c> ReadContext<'c> {
    pub(crate) fn new(environment: &'c Environment) -> Self {
        let configured = environment.get("MAX_CONCURRENT_THREADS");
        let (cap, warning) = resolve_concurrency_cap(configured);
        let explicit_cap = configured.map(|_| cap);
        let warnings = warning.map(Warning::Cap).into_iter().collect();
        Self { environment, cap, explicit_cap, warnings, purpose: Purpose::Run }
    }

    /// Creates a context for a strict check, which also reports errors that do not prevent a start.
    pub(crate) fn for_check(environment: &'c Environment) -> Self {
        Self { purpose: Purpose::Check, ..Self::new(environment) }
    }

    /// Returns whether this is a strict check.
    pub(crate) fn is_check(&self) -> bool {
        self.purpose == Purpose::Check
    }

    /// Returns whether an invalid value at `position` is replaced with a warning instead of
    /// rejected.
    pub(crate) fn is_lenient(&self, position: Position) -> bool {
        match position.source {
            Source::Database | Source::Runtime => true,
            Source::Environment => {
                let variable = position.at.and_then(|at| self.environment.get_at(at));
                variable.is_some_and(|(name, _)| !name.starts_with("TIDEGATE_"))
            }
            _ => false,
        }
    }
}
