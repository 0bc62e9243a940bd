//! Errors of a replay.

use std::io;

use tidegate_core::PolicyError;

use crate::log::line_error::LineError;

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A log cannot be read.
    #[error("cannot read {log}: {error}")]
    Read {
        /// Name of the log.
        log: String,
        /// The error of the operating system, or of the decompression.
        #[source]
        error: io::Error,
    },
    /// The format of a log is not recognized.
    #[error(
        "{0}: the format is not recognized; it must be an access log in the common or combined \
         format, JSON lines, or CSV. Pass --format combined, json or csv to see why its lines \
         cannot be read"
    )]
    UnknownFormat(String),
    /// The key option names no part of an access log.
    #[error("{log} is an access log and has no key {key:?}; use address, user, path or method")]
    AccessKey {
        /// Name of the log.
        log: String,
        /// The key option.
        key: String,
    },
    /// The cost option names no part of an access log.
    #[error("{log} is an access log and has no cost {field:?}; use bytes, or leave it out")]
    AccessCost {
        /// Name of the log.
        log: String,
        /// The cost option.
        field: String,
    },
    /// The time option is of no use for an access log.
    #[error("{0} is an access log, whose time has a fixed place; remove --time-field")]
    AccessTime(String),
    /// A CSV log lacks a column.
    #[error("{log}: no column for the {what}; columns are {columns}. Pass {option} NAME")]
    Column {
        /// Name of the log.
        log: String,
        /// What the column would contain.
        what: &'static str,
        /// Columns in the header.
        columns: String,
        /// The option that names the column.
        option: &'static str,
    },
    /// There is no line.
    #[error("the log has no lines; nothing can be replayed")]
    Empty,
    /// More than half of the lines cannot be read.
    #[error(
        "{invalid} of {lines} lines cannot be read, which is more than half: {first}. Check \
         --format, --time-field, --key and --cost-field"
    )]
    MostlyInvalid {
        /// Number of lines that cannot be read.
        invalid: u64,
        /// Number of lines.
        lines: u64,
        /// The first of them.
        first: LineError,
    },
    /// The log has too many keys.
    #[error("the log has more than 4294967295 keys; choose another one with --key")]
    TooManyKeys,
    /// A limit that follows from the log is not valid.
    #[error("the limit that follows from the log is not valid: {0}")]
    Policy(#[from] PolicyError),
    /// The events cannot be kept in a temporary file.
    #[error(
        "cannot keep the events in a temporary file: {0}; it takes 20 bytes per line, in the folder \
         for temporary files (TMPDIR)"
    )]
    Spool(#[source] io::Error),
}

impl ReplayError {
    /// Returns whether the options are wrong for this log.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::AccessKey { .. }
                | Self::AccessCost { .. }
                | Self::AccessTime(_)
                | Self::Column { .. }
        )
    }
}
