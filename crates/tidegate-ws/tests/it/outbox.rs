//! Messages that a handler of the server loop sends besides its reply.
#![cfg(feature = "axum")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::any;
use tidegate_ws::{Gate, Handler, OUTBOX_CAPACITY, Peer, ReceivedMessage, Sockets};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, mpsc};
use tokio::time::timeout;

use crate::fixture::frame;
use crate::servers::Client;

/// Long enough to be exceeded only by a hang.
const TIMEOUT: Duration = Duration::from_secs(60);

/// More messages than an outbox holds.
const MANY: usize = 3 * OUTBOX_CAPACITY + 1;

/// The outboxes of all connections, in the order in which they were opened.
type Outboxes = Arc<Mutex<Vec<mpsc::Sender<Message>>>>;

#[derive(Clone)]
struct App {
    sockets: Sockets<()>,
    outboxes: Outboxes,
    /// Two handlers meet here.
    together: Arc<Barrier>,
    /// What handlers report to the test.
    reports: mpsc::UnboundedSender<&'static str>,
}

/// A handler that sends many messages before it returns.
struct Sender {
    app: App,
    index: usize,
}

impl Sender {
    /// Sends to the connection with this index, as long as it is open.
    async fn send_many(&self, index: usize, count: usize) {
        let outbox = self.app.outboxes.lock().unwrap()[index].clone();
        for number in 0..count {
            if outbox.send(Message::text(number.to_string())).await.is_err() {
                let _ = self.app.reports.send("closed");
                return;
            }
        }
    }
}

impl Handler<()> for Sender {
    fn open(&mut self, (): &mut (), outbox: mpsc::Sender<Message>) {
        let mut outboxes = self.app.outboxes.lock().unwrap();
        self.index = outboxes.len();
        outboxes.push(outbox);
    }

    async fn message(&mut self, (): &mut (), message: ReceivedMessage) -> Option<Message> {
        match message.message_type() {
            "FEW" => self.send_many(self.index, 3).await,
            "MANY" => self.send_many(self.index, MANY).await,
            "OTHER" => {
                self.app.together.wait().await;
                self.send_many(1 - self.index, MANY).await;
                self.app.together.wait().await;
            }
            "LEAVE" => {
                let outbox = self.app.outboxes.lock().unwrap()[self.index].clone();
                let frame = CloseFrame { code: 4_000, reason: "left".into() };
                outbox.send(Message::Close(Some(frame))).await.unwrap();
                self.send_many(self.index, MANY).await;
                let _ = self.app.reports.send("finished");
            }
            _ => {}
        }
        Some(Message::text("reply"))
    }
}

async fn start() -> (SocketAddr, mpsc::UnboundedReceiver<&'static str>) {
    let (reports, received) = mpsc::unbounded_channel();
    let sockets = Sockets::new(Gate::for_any_type().build().unwrap());
    let together = Arc::new(Barrier::new(2));
    let app = App { sockets, outboxes: Arc::default(), together, reports };
    let enter = async |State(app): State<App>, upgrade: WebSocketUpgrade| -> Response {
        let handler = Sender { app: app.clone(), index: 0 };
        app.sockets.upgrade(upgrade, Peer::new(()), handler)
    };
    let router = Router::new().route("/", any(enter)).with_state(app);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, received)
}

/// Receives this many numbered messages in order.
async fn receive(client: &mut Client, count: usize) {
    for number in 0..count {
        assert_eq!(client.text().await, number.to_string());
    }
}

/// A handler waited for room in an outbox that was emptied only after it had returned.
#[tokio::test]
async fn handler_can_send_more_than_its_outbox_holds() {
    let (address, _reports) = start().await;
    let sent = timeout(TIMEOUT, async {
        let mut client = Client::connect(address).await;
        client.send(&frame("MANY")).await;
        receive(&mut client, MANY).await;
        assert_eq!(client.text().await, "reply");
    });
    sent.await.expect("the handler waits for itself");
}

/// Messages sent before the reply arrive before it, also if the outbox has room for all.
#[tokio::test]
async fn messages_queued_before_the_reply_arrive_before_it() {
    let (address, _reports) = start().await;
    let mut client = Client::connect(address).await;
    let sent = timeout(TIMEOUT, async {
        for _ in 0..20 {
            client.send(&frame("FEW")).await;
            receive(&mut client, 3).await;
            assert_eq!(client.text().await, "reply");
        }
    });
    sent.await.unwrap();
}

#[tokio::test]
async fn handlers_that_send_to_each_other_do_not_wait_for_each_other() {
    let (address, _reports) = start().await;
    let (mut one, mut other) = (Client::connect(address).await, Client::connect(address).await);
    // Both are open, so each handler knows the outbox of the other.
    for client in [&mut one, &mut other] {
        assert_eq!(client.request(&frame("NOTHING")).await, "reply");
    }
    let sent = timeout(TIMEOUT, async {
        one.send(&frame("OTHER")).await;
        other.send(&frame("OTHER")).await;
        for client in [&mut one, &mut other] {
            receive(client, MANY).await;
            assert_eq!(client.text().await, "reply");
        }
    });
    sent.await.expect("two handlers wait for each other");
}

/// A handler that closes its own connection is finished: its further messages fail, and its reply is
/// dropped.
#[tokio::test]
async fn close_frame_of_a_handler_is_its_last_message() {
    let (address, mut reports) = start().await;
    let mut client = Client::connect(address).await;
    let ended = timeout(TIMEOUT, async {
        client.send(&frame("LEAVE")).await;
        assert_eq!(client.closed().await, (4_000, "left".into()));
        assert_eq!(reports.recv().await, Some("closed"));
        assert_eq!(reports.recv().await, Some("finished"));
        assert!(client.is_ended().await);
    });
    ended.await.expect("the handler waits for a closed connection");
}
