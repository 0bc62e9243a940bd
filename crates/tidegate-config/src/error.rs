//! Why there is no plan: every mistake, and where it was made.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::fault::Fault;

/// Where a mistake was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// In a file.
    File {
        /// Which one.
        file: PathBuf,
        /// Line and column, counted from one.
        position: Option<(usize, usize)>,
    },
    /// In the defaults, which is a mistake of this program.
    Default,
    /// In this variable of the environment.
    Environment(String),
    /// In the database.
    Database,
    /// In a change at run time that no database keeps.
    Runtime,
    /// In a change that somebody asks for.
    Change,
    /// In this flag of the command line.
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

/// A mistake and where it was made.
#[derive(Debug)]
pub struct Located {
    /// Where.
    pub origin: Origin,
    /// What.
    pub fault: Fault,
}

impl Located {
    /// The rule with the place and the value, for those who tell the key by themselves:
    /// `must be a whole number >= 1 (change: 0)`.
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

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file that cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// Which one.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Everything that is wrong with what was read.
    #[error("{}", lines(.0))]
    Invalid(Vec<Located>),
}

impl ConfigError {
    /// What is wrong with a change.
    pub(crate) fn of_change(faults: Vec<Fault>) -> Self {
        let located = |fault| Located { origin: Origin::Change, fault };
        Self::Invalid(faults.into_iter().map(located).collect())
    }

    /// The mistakes; none if the file could not be read at all.
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
