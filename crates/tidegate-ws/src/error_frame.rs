//! Error frames sent to clients, and the table of refusal reasons.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;
use tidegate_core::ceil_millis;
use tidegate_http::field::RetryAfter;

/// Retry hint in milliseconds for a message that waits for a slot, when the time of its release is
/// unknown.
pub const RELEASE_HINT_MS: u64 = RetryAfter::ON_RELEASE.seconds() * 1_000;

/// Error code of an error frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum ErrorCode {
    /// A limit or the ceiling of the connection is exceeded.
    ResourceExhausted,
    /// The message can never be accepted as it is.
    FailedPrecondition,
    /// A cost function of the application returned an invalid cost.
    InvalidArgument,
    /// The message type could not be read.
    ParseError,
    /// The validation of the application rejected the message.
    ValidationError,
    /// For handlers: the client lacks permission.
    AuthError,
    /// The store of the limits is unavailable.
    Unavailable,
}

/// Why a message was refused.
///
/// | step | reason | code | message | retryable | hint |
/// | --- | --- | --- | --- | --- | --- |
/// | size | [`Payload`](Self::Payload) | `FAILED_PRECONDITION` | `Payload size exceeds limit` | no | none |
/// | type | [`Unparseable`](Self::Unparseable) | `PARSE_ERROR` | `Message type could not be read` | no | none |
/// | rate | [`Rate`](Self::Rate) | `RESOURCE_EXHAUSTED` | `Rate limit exceeded` | yes | computed, or [`RELEASE_HINT_MS`] for slots |
/// | rate | [`AboveCapacity`](Self::AboveCapacity) | `FAILED_PRECONDITION` | `Operation cost exceeds rate limit capacity` | no | none |
/// | rate | [`ConnectionUsedUp`](Self::ConnectionUsedUp) | `RESOURCE_EXHAUSTED` | `Connection limit reached` | no | none |
/// | rate | [`AllowanceUsedUp`](Self::AllowanceUsedUp) | `RESOURCE_EXHAUSTED` | `Allowance used up` | no | none |
/// | rate | [`InvalidCost`](Self::InvalidCost) | `INVALID_ARGUMENT` | `Rate limit cost must be a positive integer` | no | none |
/// | rate | [`StoreUnavailable`](Self::StoreUnavailable) | `UNAVAILABLE` | `Limits are unavailable` | yes | until the store is tried again, or one second |
/// | rate | [`NotChargeable`](Self::NotChargeable) | `FAILED_PRECONDITION` | `Message cannot be charged` | no | none |
/// | quota | [`InFlight`](Self::InFlight) | `RESOURCE_EXHAUSTED` | `Too many messages in flight` | yes | [`RELEASE_HINT_MS`] |
/// | schema | [`Invalid`](Self::Invalid) | `VALIDATION_ERROR` | the validation's own | no | none |
/// | any | [`Closing`](Self::Closing) | `FAILED_PRECONDITION` | none is sent | no | none |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The message has too many bytes. Only the ceiling of the connection was charged, if there is
    /// one.
    Payload,
    /// The type could not be read. Only the ceiling of the connection was charged, if there is one.
    Unparseable,
    /// A limit that reopens with time or a release. Nothing was charged.
    Rate,
    /// The cost exceeds the capacity of the bucket. Nothing was charged.
    AboveCapacity,
    /// The connection has used up its ceiling. Nothing was charged.
    ConnectionUsedUp,
    /// Another allowance, which does not refill, is used up. Nothing was charged.
    AllowanceUsedUp,
    /// A cost function returned a number below 1. Only the ceiling of the connection was charged,
    /// if there is one.
    InvalidCost,
    /// The store is away, and a limit of the message has the failure rule
    /// [`Closed`](tidegate::FailureRule::Closed) or the store no guard. What is decided in this
    /// process was charged: the ceiling of the connection, and limits with connection keys. No
    /// limit was exceeded, so neither the hook nor [`OnExceeded`](crate::OnExceeded) applies.
    StoreUnavailable,
    /// The charges are invalid, for example because a key is too long. Only the ceiling of the
    /// connection was charged, if there is one. Only
    /// [`Connection::refuse_undecided`](crate::Connection::refuse_undecided) returns it.
    NotChargeable,
    /// The connection has the maximum number of messages in flight. This message was charged.
    InFlight,
    /// The validation rejected the message. It was charged.
    Invalid,
    /// The connection is closing because of an earlier message. Nothing was charged.
    Closing,
}

impl RefusalReason {
    /// Returns the error code sent to the client.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        self.entry().0
    }

    /// Returns whether the same message may succeed later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Rate | Self::StoreUnavailable | Self::InFlight)
    }

    const fn entry(self) -> (ErrorCode, &'static str) {
        match self {
            Self::Payload => (ErrorCode::FailedPrecondition, "Payload size exceeds limit"),
            Self::Unparseable => (ErrorCode::ParseError, "Message type could not be read"),
            Self::Rate => (ErrorCode::ResourceExhausted, "Rate limit exceeded"),
            Self::AboveCapacity => {
                (ErrorCode::FailedPrecondition, "Operation cost exceeds rate limit capacity")
            }
            Self::ConnectionUsedUp => (ErrorCode::ResourceExhausted, "Connection limit reached"),
            Self::AllowanceUsedUp => (ErrorCode::ResourceExhausted, "Allowance used up"),
            Self::InvalidCost => {
                (ErrorCode::InvalidArgument, "Rate limit cost must be a positive integer")
            }
            Self::StoreUnavailable => (ErrorCode::Unavailable, "Limits are unavailable"),
            Self::NotChargeable => (ErrorCode::FailedPrecondition, "Message cannot be charged"),
            Self::InFlight => (ErrorCode::ResourceExhausted, "Too many messages in flight"),
            Self::Invalid => (ErrorCode::ValidationError, "Message is invalid"),
            Self::Closing => (ErrorCode::FailedPrecondition, "Connection is closing"),
        }
    }

    /// Starts the error frame for this reason.
    pub(crate) fn frame(self) -> ErrorFrame<'static> {
        let (code, message) = self.entry();
        ErrorFrame { retryable: self.is_retryable(), ..ErrorFrame::new(code, message) }
    }
}

/// An error for a client, in the same envelope as those of the gate: for handlers that reject a
/// message, and for limits that the application checks itself.
///
/// ```
/// use std::time::Duration;
/// use tidegate_ws::{ErrorCode, ErrorFrame};
/// let frame = ErrorFrame::new(ErrorCode::ResourceExhausted, "Max 10 messages/sec")
///     .retry_after(Duration::from_millis(100));
/// assert_eq!(
///     frame.to_json(),
///     r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Max 10 messages/sec","details":{},"retryable":true,"retryAfterMs":100}}"#
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use = "an error frame has no effect until it is sent"]
pub struct ErrorFrame<'a> {
    code: ErrorCode,
    message: Cow<'a, str>,
    details: Details,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

/// Details of the exceeded limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Details {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

impl<'a> ErrorFrame<'a> {
    /// Creates an error that must not be retried.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'a, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Details::default(),
            retryable: false,
            retry_after_ms: None,
        }
    }

    /// Marks the error as retryable after `wait`, sent in milliseconds and rounded up.
    pub fn retry_after(self, wait: Duration) -> Self {
        Self { retryable: true, retry_after_ms: Some(ceil_millis(wait)), ..self }
    }

    /// Serializes the frame as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Message<'m> {
            r#type: &'static str,
            payload: &'m ErrorFrame<'m>,
        }
        // A refused message should cost one allocation: this holds every frame of the gate, unless
        // the application wrote its text.
        let mut json = Vec::with_capacity(256);
        // Serializing strings and numbers does not fail, and JSON is UTF-8.
        let _ = serde_json::to_writer(&mut json, &Message { r#type: "ERROR", payload: self });
        String::from_utf8(json).unwrap_or_default()
    }

    pub(crate) fn with_details(self, kind: &'static str, observed: u64, limit: u64) -> Self {
        let details = Details { kind: Some(kind), observed: Some(observed), limit: Some(limit) };
        Self { details, ..self }
    }

    pub(crate) fn with_hint(self, retry_after_ms: Option<u64>) -> Self {
        Self { retry_after_ms, ..self }
    }

    pub(crate) fn with_message(self, message: Cow<'a, str>) -> Self {
        Self { message, ..self }
    }
}
