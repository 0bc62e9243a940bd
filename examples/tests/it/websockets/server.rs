//! The server in `docs/websockets.md`.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{ConnectInfo, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::any;
use serde::Deserialize;
use tidegate::redis::RedisStore;
use tidegate::{Engine, FailureRule, Limiter, Policy};
use tidegate_ws::{ClientAddress, Gate, Identity, MessageRule, Peer, ReceivedMessage, Sockets};
use tokio::net::TcpListener;

/// A connected client. A real server takes the user from a session.
#[derive(Deserialize)]
pub struct Member {
    user: Option<String>,
}

impl Identity for Member {
    fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

pub async fn gate(redis: &str) -> anyhow::Result<Gate<Member>> {
    let store = RedisStore::builder(redis).open()?;
    store.connected().await?;
    let engine = Engine::shared(store)?;
    // On Redis, for all servers together: per user, or per address of an anonymous client, and type.
    let messages = engine.limiter("messages", Policy::per_hour(100).burst(5).build()?)?;
    // While Redis is away, messages are limited by this server's share, and reports are refused.
    let reports = engine.limiter("reports", Policy::per_hour(2).burst(2).build()?)?;
    reports.set_failure_rule(FailureRule::Closed);
    // In this process, for each connection: no call to Redis, and no key there.
    let ceiling = Limiter::new(Policy::per_minute(60).burst(12).build()?);
    let gate = Gate::for_types(["Say", "Report"])
        .limit(messages)
        .limit(MessageRule::new(reports).when(|context| context.message_type() == "Report"))
        .connection_ceiling(ceiling)
        .max_payload(64 * 1024)
        .on_limit_exceeded(|exceeded| println!("over the limit of {}", exceeded.limit))
        .build()?;
    Ok(gate)
}

#[derive(Clone)]
struct App {
    sockets: Sockets<Member>,
    clients: ClientAddress,
}

async fn enter(
    State(app): State<App>,
    ConnectInfo(socket): ConnectInfo<SocketAddr>,
    Query(member): Query<Member>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let peer = Peer::new(member).client_address(&app.clients, socket.ip(), &headers);
    app.sockets.upgrade(upgrade, peer, |message: ReceivedMessage| async move {
        // Only messages within all limits arrive here.
        Some(Message::text(format!(r#"{{"type":"{}Done"}}"#, message.message_type())))
    })
}

/// Serves the gate until `stopped` is ready, and then closes all sockets.
pub async fn serve(
    gate: Gate<Member>,
    listener: TcpListener,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let clients = ClientAddress::from_x_forwarded_for().trust_proxies(["127.0.0.0/8"])?;
    let sockets = Sockets::new(gate);
    let app = App { sockets: sockets.clone(), clients };
    let router = Router::new().route("/", any(enter)).with_state(app);
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(stopped).await?;
    sockets.close(Duration::from_secs(10)).await;
    Ok(())
}
