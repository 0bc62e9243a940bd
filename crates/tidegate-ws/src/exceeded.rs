//! Exceeded limits: how they are reported, and what happens to the connection.
//!
//! Size and rate limits share this code; neither has a flow of its own.

use serde::Serialize;

use crate::error_frame::RefusalReason;
use crate::message_decision::ReplyFrame;
use crate::peer::ClientId;

/// Close code for a rate limit: try again later.
pub const CLOSE_RATE: u16 = 1013;
/// Close code for a message that is too large.
pub const CLOSE_PAYLOAD: u16 = 1009;

/// Kind of limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LimitKind {
    /// The size of a message.
    Payload,
    /// A rate, an allowance or slots.
    Rate,
}

impl LimitKind {
    /// Returns `payload` or `rate`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Rate => "rate",
        }
    }
}

/// A message that exceeded a limit, as passed to the hook.
///
/// Serialized, it has the field names of the wire format, and a missing hint is `null`:
///
/// ```
/// # use tidegate::now_or_never;
/// # use tidegate_ws::{Gate, Peer, MessageDecision};
/// let gate = Gate::for_types(["SAY"]).max_payload(16).build()?;
/// let mut connection = gate.connect(Peer::new(()).id("c-1"));
/// let decision = now_or_never(connection.ingress(r#"{"type":"SAY","text":"hello"}"#)).unwrap()?;
/// let MessageDecision::Refused(refusal) = decision else { unreachable!() };
/// let json = serde_json::to_string(refusal.exceeded().unwrap())?;
/// assert_eq!(
///     json,
///     r#"{"type":"payload","observed":29,"limit":16,"retryAfterMs":null,"clientId":"c-1"}"#
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LimitExceeded {
    /// Kind of limit.
    #[serde(rename = "type")]
    pub kind: LimitKind,
    /// Bytes of the message, or its cost.
    pub observed: u64,
    /// Maximum number of bytes, or the capacity of the bucket.
    pub limit: u64,
    /// When to retry, in milliseconds rounded up; `None` if the message can never be accepted.
    pub retry_after_ms: Option<u64>,
    /// Id of the connection.
    pub client_id: ClientId,
}

/// What happens to a connection that exceeds a limit of either kind.
///
/// ```
/// use tidegate_ws::{Gate, OnExceeded};
/// let close = OnExceeded::Close { code: None };
/// let gate = Gate::<()>::for_types(["Say"]).max_payload(1_024).on_exceeded(close).build()?;
/// # Ok::<(), tidegate_ws::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnExceeded {
    /// Send an error frame and keep the connection open.
    #[default]
    Send,
    /// Send a close frame. The application sends it and then drops the socket; see
    /// [`ReplyFrame::is_close`].
    Close {
        /// The close code; if `None`, [`CLOSE_RATE`] or [`CLOSE_PAYLOAD`].
        code: Option<u16>,
    },
    /// Send nothing and keep the connection open: the application acts in its hook.
    ///
    /// A message that finds the hook [`HOOK_QUEUE_CAPACITY`](crate::HOOK_QUEUE_CAPACITY) calls
    /// behind is refused without a call. It only shows in
    /// [`HookStats::dropped`](crate::HookStats::dropped) and
    /// [`Counter::HookDropped`](crate::Counter::HookDropped).
    Custom,
}

impl OnExceeded {
    /// Returns the close code if a server must not send it.
    pub(crate) const fn forbidden_code(self) -> Option<u16> {
        match self {
            Self::Close { code: Some(code) } if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) => {
                Some(code)
            }
            _ => None,
        }
    }

    /// Builds the reply to a client that exceeded a limit.
    pub(crate) fn reply(self, reason: RefusalReason, exceeded: &LimitExceeded) -> ReplyFrame {
        let LimitExceeded { kind, observed, limit, retry_after_ms, .. } = *exceeded;
        match self {
            Self::Send => ReplyFrame::Send(
                reason
                    .frame()
                    .with_details(kind.as_str(), observed, limit)
                    .with_hint(retry_after_ms)
                    .to_json(),
            ),
            Self::Close { code } => {
                let (default_code, prefix) = match kind {
                    LimitKind::Payload => (CLOSE_PAYLOAD, "payload_exceeded"),
                    LimitKind::Rate => (CLOSE_RATE, "rate_limited"),
                };
                // A close reason has at most 123 bytes; the longest of these has 52.
                let reason = match retry_after_ms {
                    Some(wait) => format!("{prefix};retry_after_ms={wait}"),
                    None => prefix.to_owned(),
                };
                ReplyFrame::Close { code: code.unwrap_or(default_code), reason }
            }
            Self::Custom => ReplyFrame::Nothing,
        }
    }
}
