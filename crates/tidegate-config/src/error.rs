//! Configuration errors, with the position of each.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::violation::Violation;

/// Where an invalid value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A file.
    File {
        /// Path of the file.
        file: PathBuf,
        /// Line and column, counted from one.
        position: Option<(usize, usize)>,
    },
    /// The built-in defaults. An error here is a bug in Tidegate.
    Default,
    /// The environment variable of this name.
    Environment(String),
    /// The database.
    Database,
    /// A change made at run time without a database to keep it.
    Runtime,
    /// A change that is being requested.
    Change,
    /// The command-line flag of this name.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, position: Some((line, column)) } => {
                write!(f, "{}:{line}:{column}", file.display())
            }
            Self::File { file, position: None } => file.display().fmt(f),
            Self::Default => f.write_str("default"),
            Self::Environment(name) => f.write_str(name),
            Self::Database => f.write_str("database"),
            Self::Runtime => f.write_str("runtime"),
            Self::Change => f.write_str("change"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A violation and where the value came from.
#[derive(Debug)]
pub struct LocatedViolation {
    /// Where the value was set.
    pub origin: Origin,
    /// What is wrong with it.
    pub violation: Violation,
}

impl LocatedViolation {
    /// Renders the error without its key, for callers that show the key separately: `must be a
    /// whole number >= 1 (change: 0)`.
    #[must_use]
    pub fn without_key(&self) -> String {
        let (rule, origin) = (self.violation.rule_text(), &self.origin);
        match &self.violation.value {
            Some(value) => format!("{rule} ({origin}: {value})"),
            None => format!("{rule} ({origin})"),
        }
    }
}

impl fmt::Display for LocatedViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.violation)
    }
}

/// An error while loading the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file could not be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The configuration is invalid. Contains every violation found, not only the first.
    #[error("{}", lines(.0))]
    Invalid(Vec<LocatedViolation>),
}

impl ConfigError {
    /// Creates an error for a requested change.
    pub(crate) fn of_change(violations: Vec<Violation>) -> Self {
        let located = |violation| LocatedViolation { origin: Origin::Change, violation };
        Self::Invalid(violations.into_iter().map(located).collect())
    }

    /// Returns all violations; empty if the file could not be read.
    #[must_use]
    pub fn violations(&self) -> &[LocatedViolation] {
        match self {
            Self::Invalid(violations) => violations,
            Self::Read { .. } => &[],
        }
    }
}

fn lines(violations: &[LocatedViolation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
