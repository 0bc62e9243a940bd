//! Servers on axum and tungstenite with the same gate and handler, and a client for both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::ws::{self, WebSocket, WebSocketUpgrade};
use futures_util::{SinkExt, StreamExt};
use tidegate_ws::{Connection, Gate, MessageDecision, Peer, ReplyFrame};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::fixture::Session;

/// WebSocket library of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Library {
    Axum,
    Tungstenite,
}

pub(crate) const BOTH: [Library; 2] = [Library::Axum, Library::Tungstenite];

/// A running server, as seen by a test.
pub(crate) struct Server {
    address: SocketAddr,
    handled_count: Arc<AtomicUsize>,
    error_count: Arc<AtomicUsize>,
    closed_count: watch::Receiver<usize>,
    accept_task: JoinHandle<()>,
}

impl Server {
    /// Stops accepting connections and drops the gate.
    pub(crate) async fn stop(self) {
        self.accept_task.abort();
        assert!(self.accept_task.await.unwrap_err().is_cancelled());
    }

    /// Number of handled messages.
    pub(crate) fn handled_count(&self) -> usize {
        self.handled_count.load(Ordering::SeqCst)
    }

    /// Number of calls to the application's error handler.
    pub(crate) fn error_count(&self) -> usize {
        self.error_count.load(Ordering::SeqCst)
    }

    /// Waits until this many connections are closed.
    pub(crate) async fn closed_count(&mut self, connections: usize) {
        self.closed_count.wait_for(|closed_count| *closed_count >= connections).await.unwrap();
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }
}

/// State of the application.
#[derive(Clone)]
struct App {
    gate: Option<Gate<Session>>,
    peer: Arc<dyn Fn(SocketAddr) -> Peer<Session> + Send + Sync>,
    handled_count: Arc<AtomicUsize>,
    error_count: Arc<AtomicUsize>,
    closed_count: watch::Sender<usize>,
}

impl App {
    /// The message handler: returns the reply.
    fn handle(&self, frame: &[u8]) -> String {
        self.handled_count.fetch_add(1, Ordering::SeqCst);
        format!("handled {}", String::from_utf8_lossy(frame))
    }

    /// Passes one frame through gate and handler.
    async fn on_frame(
        &self,
        connection: &mut Option<Connection<Session>>,
        frame: &[u8],
    ) -> Option<ReplyFrame> {
        let Some(connection) = connection else {
            return Some(ReplyFrame::Send(self.handle(frame)));
        };
        match connection.ingress(frame).await {
            Ok(MessageDecision::Accepted(_token)) => Some(ReplyFrame::Send(self.handle(frame))),
            Ok(MessageDecision::Refused(refusal)) => Some(refusal.into_reply()),
            Err(_) => {
                self.error_count.fetch_add(1, Ordering::SeqCst);
                None
            }
        }
    }

    fn connect(&self, peer: SocketAddr) -> Option<Connection<Session>> {
        self.gate.as_ref().map(|gate| gate.connect((self.peer)(peer)))
    }

    async fn on_axum(self, mut socket: WebSocket, peer: SocketAddr) {
        let mut connection = self.connect(peer);
        while let Some(Ok(message)) = socket.recv().await {
            let reply = match &message {
                ws::Message::Text(text) => self.on_frame(&mut connection, text.as_bytes()).await,
                ws::Message::Binary(bytes) => self.on_frame(&mut connection, bytes).await,
                ws::Message::Ping(_) | ws::Message::Pong(_) => continue,
                ws::Message::Close(_) => break,
            };
            let Some(reply) = reply else { break };
            let is_last = reply.is_close();
            let message = reply.into_message(ws::Message::text, |code, reason| {
                ws::Message::Close(Some(ws::CloseFrame { code, reason: reason.into() }))
            });
            if let Some(message) = message
                && socket.send(message).await.is_err()
            {
                break;
            }
            if is_last {
                break;
            }
        }
        drop(connection);
        self.closed_count.send_modify(|closed_count| *closed_count += 1);
    }

    async fn on_tungstenite(self, stream: TcpStream, peer: SocketAddr) {
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let mut connection = self.connect(peer);
        while let Some(Ok(message)) = socket.next().await {
            let reply = match &message {
                Message::Text(text) => self.on_frame(&mut connection, text.as_bytes()).await,
                Message::Binary(bytes) => self.on_frame(&mut connection, bytes).await,
                Message::Close(_) => break,
                _ => continue,
            };
            let Some(reply) = reply else { break };
            let is_last = reply.is_close();
            let message = reply.into_message(Message::text, |code, reason| {
                Message::Close(Some(CloseFrame { code: code.into(), reason: reason.into() }))
            });
            if let Some(message) = message
                && socket.send(message).await.is_err()
            {
                break;
            }
            if is_last {
                break;
            }
        }
        drop(connection);
        self.closed_count.send_modify(|closed_count| *closed_count += 1);
    }
}

/// Starts a server with or without a gate.
pub(crate) async fn serve(
    library: Library,
    gate: Option<Gate<Session>>,
    peer: impl Fn(SocketAddr) -> Peer<Session> + Send + Sync + 'static,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (closed_count, closed_receiver) = watch::channel(0);
    let (handled_count, error_count) = (Arc::default(), Arc::default());
    let app = App { gate, peer: Arc::new(peer), handled_count, error_count, closed_count };
    let (handled_count, error_count) =
        (Arc::clone(&app.handled_count), Arc::clone(&app.error_count));
    let accept_task = match library {
        Library::Axum => {
            let upgrade =
                move |upgrade: WebSocketUpgrade, peer: axum::extract::ConnectInfo<SocketAddr>| async move {
                    upgrade.on_upgrade(move |socket| app.on_axum(socket, peer.0))
                };
            let router = axum::Router::new().route("/", axum::routing::get(upgrade));
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            tokio::spawn(async move { axum::serve(listener, service).await.unwrap() })
        }
        Library::Tungstenite => tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                tokio::spawn(app.clone().on_tungstenite(stream, peer));
            }
        }),
    };
    Server { address, handled_count, error_count, closed_count: closed_receiver, accept_task }
}

/// A WebSocket client.
pub(crate) struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let (stream, _) =
            tokio_tungstenite::connect_async(format!("ws://{address}/")).await.unwrap();
        Self(stream)
    }

    /// Connects as a proxy would that forwards a client of this address.
    pub(crate) async fn forwarded(address: SocketAddr, client: &str) -> Self {
        let mut request = format!("ws://{address}/").into_client_request().unwrap();
        request.headers_mut().insert("x-forwarded-for", client.parse().unwrap());
        Self(tokio_tungstenite::connect_async(request).await.unwrap().0)
    }

    /// Whether the server has ended the connection.
    pub(crate) async fn is_ended(&mut self) -> bool {
        !matches!(self.0.next().await, Some(Ok(_)))
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    /// Sends messages in one write, so that the server cannot close the connection in between.
    pub(crate) async fn send_all(&mut self, texts: &[String]) {
        for text in texts {
            self.0.feed(Message::text(text)).await.unwrap();
        }
        self.0.flush().await.unwrap();
    }

    pub(crate) async fn send_binary(&mut self, bytes: &str) {
        self.0.send(Message::binary(Bytes::copy_from_slice(bytes.as_bytes()))).await.unwrap();
    }

    pub(crate) async fn ping(&mut self) {
        self.0.send(Message::Ping(Bytes::from_static(b"are you there"))).await.unwrap();
        let pong = self.0.next().await.unwrap().unwrap();
        assert_eq!(pong, Message::Pong(Bytes::from_static(b"are you there")));
    }

    /// Receives the next message.
    pub(crate) async fn next(&mut self) -> Message {
        self.0.next().await.unwrap().unwrap()
    }

    /// Receives the next message, which must be text.
    pub(crate) async fn text(&mut self) -> String {
        match self.next().await {
            Message::Text(text) => text.to_string(),
            other => panic!("not a text: {other:?}"),
        }
    }

    /// Receives a close frame and returns its code and reason.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        match self.next().await {
            Message::Close(Some(frame)) => (frame.code.into(), frame.reason.to_string()),
            other => panic!("not a close frame: {other:?}"),
        }
    }

    /// Sends a message and receives the next text.
    pub(crate) async fn request(&mut self, text: &str) -> String {
        self.send(text).await;
        self.text().await
    }

    pub(crate) async fn close(mut self) {
        self.0.close(None).await.unwrap();
    }
}
