//! Summary of the response to an admitted request.

use http::StatusCode;

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseEnd {
    /// All of it was handed to the server to be sent.
    Complete,
    /// It was dropped before its end: the caller disconnected, or the service failed.
    Aborted,
}

/// Summary of a finished response, from which its actual cost is
/// [settled](crate::layer::LimitLayer::settle).
#[derive(Clone, Copy, Debug)]
pub struct ResponseSummary {
    pub(crate) status: Option<StatusCode>,
    pub(crate) bytes: u64,
    pub(crate) end: ResponseEnd,
}

impl ResponseSummary {
    /// Returns the status; `None` if there was no response.
    #[must_use]
    pub const fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// Returns the bytes of content handed to the server to be sent.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how the response ended.
    #[must_use]
    pub const fn end(&self) -> ResponseEnd {
        self.end
    }
}
