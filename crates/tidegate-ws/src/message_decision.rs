//! What a gate says of a message: go ahead, or a reply for the client.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::connection::slots::Slots;
use crate::error_frame::{ErrorCode, RefusalReason};
use crate::exceeded::LimitExceeded;
use crate::gate::types::UNKNOWN_TYPE;

/// What a gate decides about one message.
#[derive(Debug)]
#[must_use = "a decision that nobody reads limits nothing"]
pub enum MessageDecision {
    /// The message may be handled.
    Accepted(AcceptedMessage),
    /// The message must not be handled; the client gets a reply.
    Refused(RefusedMessage),
}

impl MessageDecision {
    /// The token of an accepted message; the reply to a refused one.
    ///
    /// # Errors
    /// When the message was refused.
    pub fn accepted(self) -> Result<AcceptedMessage, ReplyFrame> {
        match self {
            Self::Accepted(accepted) => Ok(accepted),
            Self::Refused(refusal) => Err(refusal.into_reply()),
        }
    }
}

/// A message that may be handled, and its place among those in flight.
///
/// Keep it until the message has been handled: dropping it gives back the place under
/// [`max_in_flight`](crate::GateBuilder::max_in_flight), and the slots of limiters that count
/// concurrency.
///
/// A gate does not renew leases: a handler that takes longer than the lease of its slots loses them
/// to others while it runs. Choose a lease that is longer than the slowest handler.
#[must_use = "dropping it says that the message has been handled"]
pub struct AcceptedMessage {
    message_type: Option<Arc<str>>,
    _place: Place,
    _slots: Option<Slots>,
}

impl AcceptedMessage {
    pub(crate) const fn new(
        message_type: Option<Arc<str>>,
        place: Place,
        slots: Option<Slots>,
    ) -> Self {
        Self { message_type, _place: place, _slots: slots }
    }

    /// The type that the message was counted as; [`UNKNOWN_TYPE`] if the gate does not know it.
    #[must_use]
    pub fn message_type(&self) -> &str {
        self.message_type.as_deref().unwrap_or(UNKNOWN_TYPE)
    }
}

impl fmt::Debug for AcceptedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptedMessage").finish_non_exhaustive()
    }
}

/// A message that must not be handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedMessage {
    reason: RefusalReason,
    exceeded: Option<LimitExceeded>,
    reply: ReplyFrame,
}

impl RefusedMessage {
    pub(crate) const fn new(
        reason: RefusalReason,
        exceeded: Option<LimitExceeded>,
        reply: ReplyFrame,
    ) -> Self {
        Self { reason, exceeded, reply }
    }

    /// Why.
    #[must_use]
    pub const fn reason(&self) -> RefusalReason {
        self.reason
    }

    /// The code for it, whether or not the client is sent one.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        self.reason.code()
    }

    /// Which limit was exceeded by how much, if it was the size or a rate: what the hook is told.
    #[must_use]
    pub const fn exceeded(&self) -> Option<&LimitExceeded> {
        self.exceeded.as_ref()
    }

    /// What to do with the client.
    pub const fn reply(&self) -> &ReplyFrame {
        &self.reply
    }

    /// What to do with the client.
    pub fn into_reply(self) -> ReplyFrame {
        self.reply
    }
}

/// What to do with a client whose message was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the client has no reply until it is sent"]
pub enum ReplyFrame {
    /// Send this text frame.
    Send(String),
    /// Send this close frame, and then let go of the socket: libraries would wait for the client
    /// to answer it. The gate refuses whatever else the client had sent.
    Close {
        /// The code.
        code: u16,
        /// The reason, of at most 123 bytes.
        reason: String,
    },
    /// Nothing: the application acts in its hook, or the client has been told to go before.
    Nothing,
}

impl ReplyFrame {
    /// Whether the connection is over once this has been sent.
    ///
    /// ```
    /// use tidegate_ws::ReplyFrame;
    /// assert!(ReplyFrame::Close { code: 1013, reason: "rate_limited".into() }.is_close());
    /// assert!(!ReplyFrame::Send("{}".into()).is_close());
    /// ```
    #[must_use]
    pub const fn is_close(&self) -> bool {
        matches!(self, Self::Close { .. })
    }

    /// The reply as a message of any WebSocket library; `None` if there is nothing to send.
    ///
    /// ```
    /// use axum::extract::ws::{CloseFrame, Message};
    /// use tidegate_ws::ReplyFrame;
    ///
    /// fn message(reply: ReplyFrame) -> Option<Message> {
    ///     reply.into_message(Message::text, |code, reason| {
    ///         Message::Close(Some(CloseFrame { code, reason: reason.into() }))
    ///     })
    /// }
    ///
    /// assert_eq!(message(ReplyFrame::Send("{}".into())), Some(Message::text("{}")));
    /// assert_eq!(message(ReplyFrame::Nothing), None);
    /// ```
    pub fn into_message<M>(
        self,
        text: impl FnOnce(String) -> M,
        close: impl FnOnce(u16, String) -> M,
    ) -> Option<M> {
        match self {
            Self::Send(frame) => Some(text(frame)),
            Self::Close { code, reason } => Some(close(code, reason)),
            Self::Nothing => None,
        }
    }
}

/// The messages of a connection that are being handled.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    /// A place among at most `max`, or how many there are.
    pub(crate) fn enter(&self, max: Option<usize>) -> Result<Place, usize> {
        let enters = |taken| (max.is_none_or(|max| taken < max)).then_some(taken + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enters)?;
        Ok(Place(self.clone()))
    }
}

/// One place among the messages in flight.
#[derive(Debug)]
pub(crate) struct Place(InFlight);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
