//! Failure rules: how a limit is decided while its store is unavailable.

use core::fmt;

/// How a limit is decided while its store does not respond.
///
/// A rule belongs to a limit; set it with `Limiter::set_failure_rule`, or with
/// [`Limit::on_failure`](crate::Limit::on_failure) when creating limits directly. The guard in
/// front of the store applies it. Rules are ordered by strictness: if the limits of a list have
/// different rules, the greatest is reported.
///
/// ```
/// use tidegate::FailureRule;
/// assert!(FailureRule::Open < FailureRule::Local && FailureRule::Local < FailureRule::Closed);
/// assert_eq!(FailureRule::Closed.to_string(), "closed");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FailureRule {
    /// Allow everything and count nothing.
    Open,
    /// Each process enforces its share of the limit locally.
    Local,
    /// Deny everything.
    Closed,
}

impl FailureRule {
    /// Returns the name used in configuration and responses: `open`, `local` or `closed`.
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
