//! Two real servers with the same gate and the same handler, and a client for both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::ws::{self, WebSocket, WebSocketUpgrade};
use futures_util::{SinkExt, StreamExt};
use tidegate_ws::{Connection, Gate, MessageDecision, Peer, ReplyFrame};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::session::Session;

/// Which library serves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Library {
    Axum,
    Tungstenite,
}

pub(crate) const BOTH: [Library; 2] = [Library::Axum, Library::Tungstenite];

/// What the test sees of a server.
pub(crate) struct Server {
    address: SocketAddr,
    handled: Arc<AtomicUsize>,
    errors: Arc<AtomicUsize>,
    closed: watch::Receiver<usize>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Lets nobody in any more, and with that lets go of the gate.
    pub(crate) async fn stop(self) {
        self.accepting.abort();
        assert!(self.accepting.await.unwrap_err().is_cancelled());
    }

    /// How often the handler ran.
    pub(crate) fn handled(&self) -> usize {
        self.handled.load(Ordering::SeqCst)
    }

    /// How often the application's general error handler ran.
    pub(crate) fn errors(&self) -> usize {
        self.errors.load(Ordering::SeqCst)
    }

    /// Waits until so many connections are gone.
    pub(crate) async fn closed(&mut self, connections: usize) {
        self.closed.wait_for(|closed| *closed >= connections).await.unwrap();
    }

    pub(crate) async fn client(&self) -> Client {
        let (stream, _) =
            tokio_tungstenite::connect_async(format!("ws://{}/", self.address)).await.unwrap();
        Client(stream)
    }
}

/// What serves a connection.
#[derive(Clone)]
struct App {
    gate: Option<Gate<Session>>,
    peer: Arc<dyn Fn(SocketAddr) -> Peer<Session> + Send + Sync>,
    handled: Arc<AtomicUsize>,
    errors: Arc<AtomicUsize>,
    closed: watch::Sender<usize>,
}

impl App {
    /// The handler: what a message gets for an answer.
    fn handle(&self, frame: &[u8]) -> String {
        self.handled.fetch_add(1, Ordering::SeqCst);
        format!("handled {}", String::from_utf8_lossy(frame))
    }

    /// One frame through gate and handler.
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
                self.errors.fetch_add(1, Ordering::SeqCst);
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
            let answer = match &message {
                ws::Message::Text(text) => self.on_frame(&mut connection, text.as_bytes()).await,
                ws::Message::Binary(bytes) => self.on_frame(&mut connection, bytes).await,
                ws::Message::Ping(_) | ws::Message::Pong(_) => continue,
                ws::Message::Close(_) => break,
            };
            let Some(answer) = answer else { break };
            let is_last = answer.is_close();
            let message = answer.into_message(ws::Message::text, |code, reason| {
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
        self.closed.send_modify(|closed| *closed += 1);
    }

    async fn on_tungstenite(self, stream: TcpStream, peer: SocketAddr) {
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let mut connection = self.connect(peer);
        while let Some(Ok(message)) = socket.next().await {
            let answer = match &message {
                Message::Text(text) => self.on_frame(&mut connection, text.as_bytes()).await,
                Message::Binary(bytes) => self.on_frame(&mut connection, bytes).await,
                Message::Close(_) => break,
                _ => continue,
            };
            let Some(answer) = answer else { break };
            let is_last = answer.is_close();
            let message = answer.into_message(Message::text, |code, reason| {
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
        self.closed.send_modify(|closed| *closed += 1);
    }
}

/// Serves with a gate, or without one.
pub(crate) async fn serve(
    library: Library,
    gate: Option<Gate<Session>>,
    peer: impl Fn(SocketAddr) -> Peer<Session> + Send + Sync + 'static,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (closed, watched) = watch::channel(0);
    let (handled, errors) = (Arc::default(), Arc::default());
    let app = App { gate, peer: Arc::new(peer), handled, errors, closed };
    let (handled, errors) = (Arc::clone(&app.handled), Arc::clone(&app.errors));
    let accepting = match library {
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
    Server { address, handled, errors, closed: watched, accepting }
}

/// A client.
pub(crate) struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    pub(crate) async fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    /// Sends messages with one write, so that the server cannot hang up in between.
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

    /// The next message.
    pub(crate) async fn next(&mut self) -> Message {
        self.0.next().await.unwrap().unwrap()
    }

    /// The next text.
    pub(crate) async fn text(&mut self) -> String {
        match self.next().await {
            Message::Text(text) => text.to_string(),
            other => panic!("not a text: {other:?}"),
        }
    }

    /// The code and the reason of the close frame that must come next.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        match self.next().await {
            Message::Close(Some(frame)) => (frame.code.into(), frame.reason.to_string()),
            other => panic!("not a close frame: {other:?}"),
        }
    }

    /// Sends a message and waits for the text that comes next.
    pub(crate) async fn ask(&mut self, text: &str) -> String {
        self.send(text).await;
        self.text().await
    }

    pub(crate) async fn close(mut self) {
        self.0.close(None).await.unwrap();
    }
}
