//! Settings: single values, which layer gave them, and where in it they stand.

use std::fmt;

use serde::Serialize;

/// Where the value in force comes from; a later one wins over an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Source {
    /// Nobody said anything.
    #[default]
    Default,
    /// The configuration file.
    File,
    /// The environment.
    Environment,
    /// The database, which holds what was changed while the program ran.
    Database,
    /// A change at run time that no database keeps: it is gone when the program ends.
    Runtime,
    /// The command line.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Database => "database",
            Self::Runtime => "runtime",
            Self::Flag => "flag",
        })
    }
}

/// The place of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The layer.
    pub source: Source,
    /// In a text its first byte; else the number of the variable, of the setting of the database or
    /// of the flag. `None` for what was made up, and for requests.
    pub at: Option<usize>,
}

/// A value in force and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Who gave it.
    pub source: Source,
}

impl<T> Setting<T> {
    pub(crate) const fn default(value: T) -> Self {
        Self { value, source: Source::Default }
    }

    /// Takes what was read, if anything was.
    pub(crate) fn replace(&mut self, read: Option<Self>) {
        if let Some(read) = read {
            *self = read;
        }
    }

    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Setting<U> {
        Setting { value: map(self.value), source: self.source }
    }
}
