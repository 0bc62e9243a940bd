//! The loop of one socket.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::{Handler, OUTBOX_CAPACITY, Phase, ReceivedMessage};
use crate::connection::Connection;
use crate::context::Identity;
use crate::message_decision::MessageDecision;

/// Close code of a server that shuts down.
const CLOSE_GOING_AWAY: u16 = 1001;

/// How long a socket waits for the close frame of its client.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// One socket, its connection at the gate, and its handler.
pub(super) struct Session<D, H> {
    socket: WebSocket,
    connection: Connection<D>,
    handler: H,
}

impl<D: Identity + Send, H: Handler<D>> Session<D, H> {
    pub(super) const fn new(socket: WebSocket, connection: Connection<D>, handler: H) -> Self {
        Self { socket, connection, handler }
    }

    /// Serves the socket until it is closed by either side or aborted.
    pub(super) async fn run(self, phase: watch::Receiver<Phase>) {
        let aborted = phase.clone();
        tokio::select! {
            () = self.serve(phase) => {}
            () = reached(aborted, Phase::Aborted) => {}
        }
    }

    async fn serve(mut self, phase: watch::Receiver<Phase>) {
        let (outbox, mut outgoing) = mpsc::channel(OUTBOX_CAPACITY);
        self.handler.open(self.connection.data_mut(), outbox);
        let mut closing = std::pin::pin!(reached(phase, Phase::Closing));
        loop {
            let message = tokio::select! {
                () = &mut closing => Some(close_message(CLOSE_GOING_AWAY, "going away")),
                Some(message) = outgoing.recv() => Some(message),
                received = self.socket.recv() => match received {
                    Some(Ok(frame)) => self.on_frame(frame).await,
                    // The client has closed the connection, or broken the protocol.
                    Some(Err(_)) | None => return,
                },
            };
            let Some(message) = message else { continue };
            let is_last = matches!(message, Message::Close(_));
            if self.socket.send(message).await.is_err() {
                return;
            }
            if is_last {
                // Closing a TCP connection with unread data can destroy the close frame.
                let unread = async { while let Some(Ok(_)) = self.socket.recv().await {} };
                let _ = timeout(CLOSE_TIMEOUT, unread).await;
                return;
            }
        }
    }

    /// Passes a frame to the gate and the handler, and returns the reply.
    async fn on_frame(&mut self, frame: Message) -> Option<Message> {
        let decision = match &frame {
            Message::Text(text) => self.connection.ingress(text.as_str()).await,
            Message::Binary(bytes) => self.connection.ingress(bytes).await,
            // The library replies to these.
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => return None,
        };
        let refusal = match decision {
            Ok(MessageDecision::Accepted(accepted)) => {
                let message = ReceivedMessage { frame, accepted };
                return self.handler.message(self.connection.data_mut(), message).await;
            }
            Ok(MessageDecision::Refused(refusal)) => refusal,
            Err(error) => self.connection.refuse_undecided(&error),
        };
        refusal.into_reply().into_message(Message::text, close_message)
    }
}

fn close_message(code: u16, reason: impl Into<Utf8Bytes>) -> Message {
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}

/// Waits until a phase is reached; forever if nothing can change the phase any more.
async fn reached(mut phase: watch::Receiver<Phase>, target: Phase) {
    if phase.wait_for(|phase| *phase >= target).await.is_err() {
        std::future::pending::<()>().await;
    }
}
