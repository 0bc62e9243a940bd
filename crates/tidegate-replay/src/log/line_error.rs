//! Why a line cannot be read.

/// Why a line of a log cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// Not an access log line.
    #[error("is not in the common or combined log format: no `[time] \"request\"`")]
    NoRequest,
    /// The request has no closing quote, so that nothing behind it can be read.
    #[error("the request has no closing quote")]
    OpenRequest,
    /// Fields are missing.
    #[error("has no {0}")]
    Missing(&'static str),
    /// The time cannot be read.
    #[error(
        "its time is not a date such as 2026-01-31T08:00:00Z, and not a number of seconds, \
         milliseconds, microseconds or nanoseconds since 1970"
    )]
    Time,
    /// The date in brackets cannot be read.
    #[error("its time is not a date such as 10/Oct/2000:13:55:36 -0700")]
    AccessTime,
    /// The time is out of range.
    #[error("its time is not between 1970 and 2262")]
    TimeRange,
    /// The cost is not a whole number.
    #[error("its cost is not a whole number from 0 to 18446744073709551615")]
    Cost,
    /// The key is neither text nor a number.
    #[error("its key is neither text nor a number")]
    KeyKind,
    /// Not a JSON object.
    #[error("is not a JSON object")]
    NotJson,
    /// A quoted CSV field does not end.
    #[error("a quoted field has no closing quote")]
    OpenField,
    /// The line is too long.
    #[error("is longer than 1 MiB")]
    TooLong,
}
