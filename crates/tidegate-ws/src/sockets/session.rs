//! The loop of one socket.
//!
//! The outbox is sent also while a message is handled. Otherwise a handler that sends more than the
//! outbox holds would wait for itself, and two that send to each other's clients for each other.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use tokio::sync::{Notify, mpsc, watch};
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

    async fn serve(self, phase: watch::Receiver<Phase>) {
        let Self { mut socket, mut connection, mut handler } = self;
        let (outbox, mut outgoing) = mpsc::channel(OUTBOX_CAPACITY);
        handler.open(connection.data_mut(), outbox);
        let mut closing = std::pin::pin!(reached(phase, Phase::Closing));
        loop {
            let sent = tokio::select! {
                () = &mut closing => {
                    send(&mut socket, close_message(CLOSE_GOING_AWAY, "going away")).await
                }
                Some(message) = outgoing.recv() => send(&mut socket, message).await,
                received = socket.recv() => match received {
                    Some(Ok(frame)) => {
                        let reply = reply_to(frame, &mut connection, &mut handler);
                        respond(&mut socket, &mut outgoing, reply).await
                    }
                    // The client has closed the connection, or broken the protocol.
                    Some(Err(_)) | None => return,
                },
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

/// The connection is broken, or a close frame was sent.
struct Ended;

/// Sends a message. A close frame is the last one.
async fn send(socket: &mut WebSocket, message: Message) -> Result<(), Ended> {
    let is_last = matches!(message, Message::Close(_));
    socket.send(message).await.map_err(|_| Ended)?;
    if !is_last {
        return Ok(());
    }
    // Closing a TCP connection with unread data can destroy the close frame.
    let unread = async { while let Some(Ok(_)) = socket.recv().await {} };
    let _ = timeout(CLOSE_TIMEOUT, unread).await;
    Err(Ended)
}

/// Passes a frame to the gate and the handler, and returns the reply.
async fn reply_to<D: Identity + Send>(
    frame: Message,
    connection: &mut Connection<D>,
    handler: &mut impl Handler<D>,
) -> Option<Message> {
    let decision = match &frame {
        Message::Text(text) => connection.ingress(text.as_str()).await,
        Message::Binary(bytes) => connection.ingress(bytes).await,
        // The library replies to these.
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) => return None,
    };
    let refusal = match decision {
        Ok(MessageDecision::Accepted(accepted)) => {
            let message = ReceivedMessage { frame, accepted };
            return handler.message(connection.data_mut(), message).await;
        }
        Ok(MessageDecision::Refused(refusal)) => refusal,
        Err(error) => connection.refuse_undecided(&error),
    };
    refusal.into_reply().into_message(Message::text, close_message)
}

/// Sends the outbox until there is a reply, then what was queued before it, then the reply. A
/// handler in progress is always finished, also if the connection has ended meanwhile.
async fn respond(
    socket: &mut WebSocket,
    outgoing: &mut mpsc::Receiver<Message>,
    reply: impl Future<Output = Option<Message>>,
) -> Result<(), Ended> {
    let handled = Notify::new();
    let reply = async {
        let reply = reply.await;
        handled.notify_one();
        reply
    };
    let sent = async {
        let sent = send_outbox(socket, outgoing, handled.notified()).await;
        if sent.is_err() {
            // Otherwise the handler would wait for room in an outbox that nothing empties.
            outgoing.close();
        }
        sent
    };
    let (reply, sent) = tokio::join!(reply, sent);
    sent?;
    match reply {
        Some(reply) => send(socket, reply).await,
        None => Ok(()),
    }
}

/// Sends the outbox until `handled` is ready, and what is queued by then: no more, because others
/// may queue messages as fast as they are sent.
async fn send_outbox(
    socket: &mut WebSocket,
    outgoing: &mut mpsc::Receiver<Message>,
    handled: impl Future<Output = ()>,
) -> Result<(), Ended> {
    let mut handled = std::pin::pin!(handled);
    loop {
        tokio::select! {
            biased;
            () = &mut handled => break,
            Some(message) = outgoing.recv() => send(socket, message).await?,
        }
    }
    for _ in 0..outgoing.len() {
        if let Ok(message) = outgoing.try_recv() {
            send(socket, message).await?;
        }
    }
    Ok(())
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
