//! A ready-made server loop for axum: upgrade, reading, gate, handler, replies and shutdown.
//!
//! It adds no decision of its own: every frame passes [`Connection::ingress`].

mod session;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::sync::{mpsc, watch};

use crate::context::Identity;
use crate::gate::Gate;
use crate::message_decision::AcceptedMessage;
use crate::peer::Peer;
use crate::sockets::session::Session;

/// Number of messages that a handler can have queued for its client; see [`Handler::open`].
pub const OUTBOX_CAPACITY: usize = 64;

/// Minimum size of a message at which the WebSocket library ends the connection.
const MIN_LIBRARY_LIMIT: usize = 64 * 1024;

/// Handles the accepted messages of one connection.
///
/// A closure from [`ReceivedMessage`] to a future of an optional reply is a handler. A type can
/// also keep state, change the data of the connection, and send messages at any time:
///
/// ```
/// use axum::extract::ws::Message;
/// use tidegate_ws::{Handler, Identity, ReceivedMessage};
/// use tokio::sync::mpsc;
///
/// #[derive(Default)]
/// struct Session { user: Option<String> }
/// impl Identity for Session {
///     fn user(&self) -> Option<&str> { self.user.as_deref() }
/// }
///
/// struct Chat { outbox: Option<mpsc::Sender<Message>> }
///
/// impl Handler<Session> for Chat {
///     fn open(&mut self, _: &mut Session, outbox: mpsc::Sender<Message>) {
///         self.outbox = Some(outbox); // for others in the room
///     }
///
///     async fn message(
///         &mut self,
///         session: &mut Session,
///         message: ReceivedMessage,
///     ) -> Option<Message> {
///         if message.message_type() == "Login" {
///             session.user = Some("alice".into()); // counts from the next message on
///         }
///         Some(Message::text(r#"{"type":"Done"}"#))
///     }
/// }
/// ```
pub trait Handler<D>: Send + 'static {
    /// Called once, before the first message, with a sender of messages to the client, also for the
    /// handlers of other connections. They are sent at once, also while a message is handled. If
    /// the client reads too slowly, [`OUTBOX_CAPACITY`] messages are queued, and sending waits or
    /// fails as [`mpsc::Sender`] describes. A close frame ends the connection.
    fn open(&mut self, data: &mut D, outbox: mpsc::Sender<Message>) {
        let _ = (data, outbox);
    }

    /// Handles a message, and returns the reply if there is one. It is sent after all messages that
    /// were queued in the outbox before; after a close frame, it is dropped.
    ///
    /// The next message is read after that; to handle several at once, spawn a task with the
    /// message and send the reply through the sender of [`open`](Self::open).
    fn message(
        &mut self,
        data: &mut D,
        message: ReceivedMessage,
    ) -> impl Future<Output = Option<Message>> + Send;
}

impl<D, F, R> Handler<D> for F
where
    D: Send,
    F: FnMut(ReceivedMessage) -> R + Send + 'static,
    R: Future<Output = Option<Message>> + Send,
{
    fn message(
        &mut self,
        _: &mut D,
        message: ReceivedMessage,
    ) -> impl Future<Output = Option<Message>> + Send {
        self(message)
    }
}

/// A message within all limits. Dropping it marks it as handled, as with [`AcceptedMessage`].
#[derive(Debug)]
#[must_use = "dropping the message marks it as handled"]
pub struct ReceivedMessage {
    frame: Message,
    accepted: AcceptedMessage,
}

impl ReceivedMessage {
    /// Returns the type that the message counts as; see [`AcceptedMessage::message_type`].
    #[must_use]
    pub fn message_type(&self) -> &str {
        self.accepted.message_type()
    }

    /// Returns the text or binary frame.
    #[must_use]
    pub const fn frame(&self) -> &Message {
        &self.frame
    }
}

/// The open WebSockets of a gate, for axum. Cheap to clone; clones share the sockets.
///
/// | event | the client gets |
/// | --- | --- |
/// | accepted message | the reply of the [`Handler`] |
/// | refused message | the [`ReplyFrame`](crate::ReplyFrame) of the gate: an error frame, a close frame, or nothing |
/// | store away, rule [`Open`](tidegate::FailureRule::Open) or [`Local`](tidegate::FailureRule::Local) | as above, decided by the rule |
/// | store away, rule [`Closed`](tidegate::FailureRule::Closed), or no guard | an error frame `UNAVAILABLE` with a hint; the connection stays open |
/// | message of more than twice [`max_payload`](crate::GateBuilder::max_payload), at least 64 KiB | the end of the connection, without a close frame |
/// | [`close`](Self::close) | the reply to the message in progress, and a close frame with code 1001 |
///
/// ```no_run
/// use std::net::SocketAddr;
/// use std::time::Duration;
///
/// use axum::Router;
/// use axum::extract::ws::{Message, WebSocketUpgrade};
/// use axum::extract::{ConnectInfo, State};
/// use axum::response::Response;
/// use axum::routing::any;
/// use tidegate::{Limiter, Policy};
/// use tidegate_ws::{Gate, Peer, ReceivedMessage, Sockets};
///
/// async fn enter(
///     State(sockets): State<Sockets<()>>,
///     ConnectInfo(socket): ConnectInfo<SocketAddr>,
///     upgrade: WebSocketUpgrade,
/// ) -> Response {
///     sockets.upgrade(upgrade, Peer::new(()).ip(socket.ip()), async |message: ReceivedMessage| {
///         Some(message.frame().clone())
///     })
/// }
///
/// # async fn stopped() {}
/// # use tokio::net::TcpListener;
/// # async fn example(listener: TcpListener) -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(Policy::per_second(5).build()?);
/// let sockets = Sockets::new(Gate::for_types(["Say"]).limit(limiter).build()?);
/// let router = Router::new().route("/", any(enter)).with_state(sockets.clone());
/// let service = router.into_make_service_with_connect_info::<SocketAddr>();
/// axum::serve(listener, service).with_graceful_shutdown(stopped()).await?;
/// sockets.close(Duration::from_secs(10)).await;
/// # Ok(())
/// # }
/// ```
pub struct Sockets<D> {
    gate: Gate<D>,
    /// Each socket holds receivers, so the channel is closed when there is none.
    phase: watch::Sender<Phase>,
}

/// What sockets do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// Finish the message in progress and close.
    Closing,
    /// End at once.
    Aborted,
}

impl<D: Identity + Send> Sockets<D> {
    /// Creates the set of sockets of a gate, without any.
    #[must_use]
    pub fn new(gate: Gate<D>) -> Self {
        Self { gate, phase: watch::Sender::new(Phase::Open) }
    }

    /// Responds to an upgrade request, and serves the socket in a task. After
    /// [`close`](Self::close), the response is 503.
    pub fn upgrade(
        &self,
        upgrade: WebSocketUpgrade,
        peer: Peer<D>,
        handler: impl Handler<D>,
    ) -> Response {
        let phase = self.phase.subscribe();
        if *phase.borrow() != Phase::Open {
            return (StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")
                .into_response();
        }
        let upgrade = match self.gate.max_payload() {
            // Somewhat more, so that messages that are too large get an error frame.
            Some(max) => {
                let limit = max.saturating_mul(2).max(MIN_LIBRARY_LIMIT);
                upgrade.max_message_size(limit).max_frame_size(limit)
            }
            None => upgrade,
        };
        let connection = self.gate.connect(peer);
        upgrade.on_upgrade(move |socket| Session::new(socket, connection, handler).run(phase))
    }

    /// Closes all sockets, and then [waits for the hook](Gate::drain_hook). Each socket finishes
    /// its message in progress. After `timeout`, the sockets that are left are ended at once, and
    /// the number of hook calls that are left is logged. Can be called more than once.
    pub async fn close(&self, timeout: Duration) {
        self.enter(Phase::Closing);
        let finished = async {
            self.phase.closed().await;
            self.gate.drain_hook().await;
        };
        if tokio::time::timeout(timeout, finished).await.is_ok() {
            return;
        }
        self.enter(Phase::Aborted);
        self.phase.closed().await;
        let pending = self.gate.hook_stats().pending;
        if pending > 0 {
            tracing::warn!(pending, "limit hook did not finish before the timeout");
        }
    }

    fn enter(&self, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let is_later = next > *phase;
            *phase = next.max(*phase);
            is_later
        });
    }
}

impl<D> Clone for Sockets<D> {
    fn clone(&self) -> Self {
        Self { gate: self.gate.clone(), phase: self.phase.clone() }
    }
}

impl<D> fmt::Debug for Sockets<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").field("gate", &self.gate).finish_non_exhaustive()
    }
}
