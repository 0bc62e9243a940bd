//! Rate-limit header fields: written for callers, and read from upstream responses.
//!
//! There is no finished standard, so there are several [`Style`]s; any set of them can be enabled.
//! The default is the current IETF draft. The fields carry quotas and times, never keys: a caller
//! must not learn who shares its bucket.
//!
//! This module makes no decisions and reads no clock. Each field is written straight into the
//! allocation of its header value, without intermediate strings.

mod date;
mod read;
mod report;
mod retry_after;
mod structured;
mod style;
mod value_writer;
mod write;

#[cfg(feature = "tonic")]
pub(crate) use read::MAX_WAIT;
pub use read::{ReportedLimit, ReportedLimits, read};
pub use report::{Report, Unit};
pub use retry_after::{RETRY_AFTER_MS, RetryAfter};
pub use style::{Reset, Style, Styles};
pub use write::Fields;
