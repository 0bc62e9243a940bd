//! What came of a request that was let in.

use http::StatusCode;

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseEnd {
    /// All of it was handed over to be sent.
    Whole,
    /// It was dropped before its end, because the caller went away, or the service failed.
    Cut,
}

/// A response that is over, as far as it got. What it really cost is
/// [settled](crate::layer::LimitLayer::settle) by it.
#[derive(Clone, Copy, Debug)]
pub struct ResponseSummary {
    pub(crate) status: Option<StatusCode>,
    pub(crate) bytes: u64,
    pub(crate) end: ResponseEnd,
}

impl ResponseSummary {
    /// The status; `None` if there was no response at all.
    #[must_use]
    pub const fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// The bytes of content that were handed over to be sent.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How it ended.
    #[must_use]
    pub const fn end(&self) -> ResponseEnd {
        self.end
    }
}
