//! The program in `docs/websockets.md`: it runs on a real Redis, and the page shows it verbatim.
#![allow(missing_docs, unreachable_pub, reason = "the program is written as users would")]
#![allow(clippy::print_stdout, reason = "the program shows what its hook is told")]

mod server;

use std::net::SocketAddr;

use futures_util::{SinkExt as _, StreamExt as _};
use tidegate_testkit::launch::{Flavor, RedisServer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{ClientRequestBuilder, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::page::assert_shows;

#[test]
fn the_page_shows_the_program() {
    assert_shows(
        "docs/websockets.md",
        include_str!("../../../docs/websockets.md"),
        &[("websockets/server.rs", include_str!("websockets/server.rs"))],
    );
}

struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Server {
    async fn start(redis: &RedisServer) -> Self {
        let gate = server::gate(&redis.url()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server::serve(gate, listener, async {
            let _ = stopped.await;
        }));
        Self { address, stop, task }
    }
}

struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    async fn connect(server: &Server, query: &str, forwarded_for: &str) -> Self {
        let uri = format!("ws://{}/{query}", server.address).parse().unwrap();
        let request = ClientRequestBuilder::new(uri).with_header("x-forwarded-for", forwarded_for);
        let request = request.into_client_request().unwrap();
        Self(tokio_tungstenite::connect_async(request).await.unwrap().0)
    }

    async fn next(&mut self) -> Message {
        self.0.next().await.unwrap().unwrap()
    }

    async fn send(&mut self, message_type: &str) -> String {
        let text = format!(r#"{{"type":"{message_type}"}}"#);
        self.0.send(Message::text(text)).await.unwrap();
        self.next().await.into_text().unwrap().to_string()
    }

    /// Number of messages that are accepted before the first error.
    async fn accepted(&mut self, message_type: &str) -> (usize, String) {
        for accepted in 0.. {
            let reply = self.send(message_type).await;
            if reply != format!(r#"{{"type":"{message_type}Done"}}"#) {
                return (accepted, reply);
            }
        }
        unreachable!()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_share_limits_and_shut_down() {
    let redis = RedisServer::start(Flavor::Redis);
    let (one, other) = (Server::start(&redis).await, Server::start(&redis).await);
    let mut alice = Client::connect(&one, "?user=alice", "203.0.113.1").await;
    let (accepted, error) = alice.accepted("Say").await;
    assert_eq!(accepted, 5);
    assert!(error.contains(r#""code":"RESOURCE_EXHAUSTED","message":"Rate limit exceeded""#));
    // The same user on another server, and two anonymous clients behind the proxy.
    let mut elsewhere = Client::connect(&other, "?user=alice", "203.0.113.2").await;
    assert_eq!(elsewhere.accepted("Say").await.0, 0);
    let mut anonymous = Client::connect(&one, "", "203.0.113.1").await;
    assert_eq!(anonymous.accepted("Say").await.0, 5);
    let mut neighbour = Client::connect(&other, "", "203.0.113.2").await;
    assert_eq!(neighbour.accepted("Say").await.0, 5);
    // Two reports within the hour; the refused one spends nothing of the messages.
    let (accepted, error) = neighbour.accepted("Report").await;
    assert_eq!(accepted, 2);
    assert!(error.contains(r#""limit":2"#), "{error}");
    // Redis holds buckets of users and addresses only.
    let keys = redis.command(&["KEYS", "*conn*"]).array();
    assert!(keys.is_empty(), "{keys:?}");
    one.stop.send(()).unwrap();
    let Message::Close(Some(frame)) = alice.next().await else { panic!("not closed") };
    assert_eq!(u16::from(frame.code), 1001);
    drop((alice, anonymous));
    one.task.await.unwrap().unwrap();
}

/// What the page says of the time while Redis is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_rules_decide_without_redis() {
    let redis = RedisServer::start(Flavor::Redis);
    let server = Server::start(&redis).await;
    let mut client = Client::connect(&server, "?user=alice", "203.0.113.1").await;
    assert_eq!(client.send("Report").await, r#"{"type":"ReportDone"}"#);
    redis.kill();
    let refused = client.send("Report").await;
    assert!(refused.contains(r#""code":"UNAVAILABLE""#), "{refused}");
    assert!(refused.contains(r#""retryable":true,"retryAfterMs":"#), "{refused}");
    assert_eq!(client.send("Say").await, r#"{"type":"SayDone"}"#);
}
