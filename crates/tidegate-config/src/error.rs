//! Configuration errors, with the place where each one was made.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::fault::Fault;

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

/// A violated rule together with its place.
#[derive(Debug)]
pub struct Located {
    /// Where the value was set.
    pub origin: Origin,
    /// What is wrong with it.
    pub fault: Fault,
}

impl Located {
    /// Renders the error without its key, for callers that show the key separately: `must be a
    /// whole number >= 1 (change: 0)`.
    #[must_use]
    pub fn without_key(&self) -> String {
        let (rule, origin) = (self.fault.rule_text(), &self.origin);
        match &self.fault.value {
            Some(value) => format!("{rule} ({origin}: {value})"),
            None => format!("{rule} ({origin})"),
        }
    }
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.fault)
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
    Invalid(Vec<Located>),
}

impl ConfigError {
    /// Creates an error for a requested change.
    pub(crate) fn of_change(faults: Vec<Fault>) -> Self {
        let located = |fault| Located { origin: Origin::Change, fault };
        Self::Invalid(faults.into_iter().map(located).collect())
    }

    /// Returns all violations; empty if the file could not be read.
    #[must_use]
    pub fn faults(&self) -> &[Located] {
        match self {
            Self::Invalid(faults) => faults,
            Self::Read { .. } => &[],
        }
    }
}

fn lines(faults: &[Located]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
