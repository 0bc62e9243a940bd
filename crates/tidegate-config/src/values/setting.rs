//! Settings: values with the layer they come from.

use std::fmt;

use serde::Serialize;

/// The layer that a value comes from, in ascending precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Source {
    /// The built-in default.
    #[default]
    Default,
    /// The configuration file.
    File,
    /// The environment.
    Environment,
    /// The database, which contains settings changed at run time.
    Database,
    /// A change at run time that no database keeps; it is lost on restart.
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

/// Where a value was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The layer.
    pub source: Source,
    /// Byte offset in the file, or index of the variable, stored setting or flag. `None` for
    /// requests and for values that were not read.
    pub at: Option<usize>,
}

/// An effective value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// The layer that the value comes from.
    pub source: Source,
}

impl<T> Setting<T> {
    pub(crate) const fn default(value: T) -> Self {
        Self { value, source: Source::Default }
    }

    /// Replaces the setting if a value was read.
    pub(crate) fn replace(&mut self, read: Option<Self>) {
        if let Some(read) = read {
            *self = read;
        }
    }

    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Setting<U> {
        Setting { value: map(self.value), source: self.source }
    }
}
