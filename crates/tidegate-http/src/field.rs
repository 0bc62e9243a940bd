//! What callers are told of limits in header fields, and a reader of what others tell.
//!
//! There is no finished standard, so there are several [`Style`]s; any set of them can be on. The
//! default is the current IETF draft. The fields tell of quotas and of time, never of keys: who
//! shares a bucket with whom is nobody's business.
//!
//! Nothing here decides anything or reads a clock. What is written ends up in values that were
//! allocated once; there are no texts in between.

mod date;
mod line;
mod read;
mod report;
mod retry_after;
mod structured;
mod style;
mod write;

#[cfg(feature = "tonic")]
pub(crate) use read::LONGEST;
pub use read::{ReportedLimit, ReportedLimits, read};
pub use report::{Report, Unit};
pub use retry_after::{RETRY_AFTER_MS, RetryAfter};
pub use style::{Reset, Style, Styles};
pub use write::Fields;
