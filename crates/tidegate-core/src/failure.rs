//! Failure rules: what is decided about a limit while its store does not answer.

use core::fmt;

/// What is decided about a limit while its store does not answer.
///
/// A rule belongs to the limit (`Limiter::set_failure_rule`, or
/// [`Limit::on_failure`](crate::Limit::on_failure) for those who make limits) and is carried out by whoever stands between callers and the store. The order is by strictness: of several
/// rules in one list the greatest is the one that is reported.
///
/// ```
/// use tidegate::FailureRule;
/// assert!(FailureRule::Open < FailureRule::Local && FailureRule::Local < FailureRule::Closed);
/// assert_eq!(FailureRule::Closed.to_string(), "closed");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FailureRule {
    /// Everything is allowed, and nothing counted.
    Open,
    /// Each process enforces its share of the limit by itself.
    Local,
    /// Everything is denied.
    Closed,
}

impl FailureRule {
    /// The word for it, as in configuration and answers: `open`, `local` or `closed`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Local => "local",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for FailureRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
