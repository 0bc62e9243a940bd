//! How much of settings is taken: the same numbers for a change and for the database that keeps it.
//!
//! The rules of the tables of databases name the lengths as well, and a published format does not
//! change: another number here needs another format there.

/// The most settings that a database keeps.
pub const MOST_SETTINGS: usize = 4_096;

/// The most settings that are changed at once: all of them, so that all of them can be unset.
pub const MOST_CHANGES: usize = MOST_SETTINGS;

/// The most characters of the path of a setting.
pub const LONGEST_KEY: usize = 256;

/// The most characters of a value, as JSON.
pub const LONGEST_VALUE: usize = 16_384;
