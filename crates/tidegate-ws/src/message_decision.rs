//! The decision on a message: accepted, or refused with a reply for the client.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::connection::slots::Slots;
use crate::error_frame::{ErrorCode, RefusalReason};
use crate::exceeded::LimitExceeded;
use crate::gate::types::UNKNOWN_TYPE;

/// Decision on one message.
#[derive(Debug)]
#[must_use = "an unchecked decision limits nothing"]
pub enum MessageDecision {
    /// Handle the message.
    Accepted(AcceptedMessage),
    /// Do not handle the message; send the reply to the client.
    Refused(RefusedMessage),
}

impl MessageDecision {
    /// Returns the accepted message, or the reply to a refused one.
    ///
    /// # Errors
    /// Returns the reply if the message was refused.
    pub fn accepted(self) -> Result<AcceptedMessage, ReplyFrame> {
        match self {
            Self::Accepted(accepted) => Ok(accepted),
            Self::Refused(refusal) => Err(refusal.into_reply()),
        }
    }
}

/// A message to handle, counted as in flight.
///
/// Keep it until the message has been handled. Dropping it ends the message's share of
/// [`max_in_flight`](crate::GateBuilder::max_in_flight) and releases the slots of concurrency
/// limits.
///
/// A gate does not renew leases: a handler that takes longer than the lease of its slots loses them
/// while it runs. Choose a lease longer than the slowest handler.
#[must_use = "dropping the message marks it as handled"]
pub struct AcceptedMessage {
    message_type: Option<Arc<str>>,
    _guard: InFlightGuard,
    _slots: Vec<Slots>,
}

impl AcceptedMessage {
    pub(crate) const fn new(
        message_type: Option<Arc<str>>,
        guard: InFlightGuard,
        slots: Vec<Slots>,
    ) -> Self {
        Self { message_type, _guard: guard, _slots: slots }
    }

    /// Returns the type that the message counts as; [`UNKNOWN_TYPE`] if the gate does not know it.
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

/// A refused message, with the reason and the reply for the client.
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

    /// Returns why the message was refused.
    #[must_use]
    pub const fn reason(&self) -> RefusalReason {
        self.reason
    }

    /// Returns the error code, whether or not it is sent to the client.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        self.reason.code()
    }

    /// Returns the exceeded limit, as passed to the hook, if the size or a rate was exceeded.
    #[must_use]
    pub const fn exceeded(&self) -> Option<&LimitExceeded> {
        self.exceeded.as_ref()
    }

    /// Returns the reply for the client.
    pub const fn reply(&self) -> &ReplyFrame {
        &self.reply
    }

    /// Converts into the reply for the client.
    pub fn into_reply(self) -> ReplyFrame {
        self.reply
    }
}

/// What to send to a client whose message was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the reply has no effect until it is sent"]
pub enum ReplyFrame {
    /// Send this text frame.
    Send(String),
    /// Send this close frame, then drop the socket: WebSocket libraries would wait for the close
    /// frame of the client. The gate refuses all further frames.
    Close {
        /// Close code.
        code: u16,
        /// Close reason, at most 123 bytes.
        reason: String,
    },
    /// Send nothing: the application acts in its hook, or the connection is already closing.
    Nothing,
}

impl ReplyFrame {
    /// Returns whether the connection must be closed after this reply.
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

    /// Converts the reply to a message of any WebSocket library; `None` if there is nothing to
    /// send.
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

/// Counter of the messages of a connection that are being handled.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    /// Counts one more message if there are fewer than `max`; otherwise returns their number.
    pub(crate) fn enter(&self, max: Option<usize>) -> Result<InFlightGuard, usize> {
        let increment = |count| (max.is_none_or(|max| count < max)).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment)?;
        Ok(InFlightGuard(self.clone()))
    }
}

/// One counted message; the count decreases on drop.
#[derive(Debug)]
pub(crate) struct InFlightGuard(InFlight);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
