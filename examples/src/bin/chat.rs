//! A WebSocket chat with limits per user, room and message type on two servers, and a client that
//! reaches the limits. With the URL of a Redis server, both servers share their limits.
//!
//! `cargo run -p tidegate-examples --bin chat`, or
//! `cargo run -p tidegate-examples --bin chat -- redis://127.0.0.1:6379`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{ConnectInfo, Query, State};
use axum::response::Response;
use axum::routing::any;
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use tidegate::redis::RedisStore;
use tidegate::{Engine, Limiter, Policy};
use tidegate_ws::{
    Gate, Identity, KeyParts, MessageRule, Peer, ReceivedMessage, Sockets, key_per_user_per_type,
};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite;

/// User and room of a connection. A real server takes the user from a session.
#[derive(Deserialize)]
struct Member {
    user: String,
    room: String,
}

impl Identity for Member {
    fn user(&self) -> Option<&str> {
        Some(&self.user)
    }
}

/// An engine with limits of this process, or shared by all processes with the same URL.
async fn engine(redis: Option<&str>) -> Result<Engine> {
    let Some(address) = redis else { return Ok(Engine::new()) };
    let store = RedisStore::builder(address).open()?;
    store.connected().await?;
    // Each limit uses a local share while Redis is unavailable.
    Ok(Engine::shared(store)?)
}

/// Limits that every message must pass together: a message refused by one spends nothing of the
/// others. The limit of a connection is in this process, also if the others are on Redis.
fn gate(engine: &Engine) -> Result<Gate<Member>> {
    let user = engine.limiter("user", Policy::per_minute(10).capacity(5).build()?)?;
    let room = engine.limiter("room", Policy::per_minute(10).capacity(12).build()?)?;
    let images = engine.limiter("images", Policy::per_minute(2).capacity(2).build()?)?;
    let gate = Gate::<Member>::for_types(["Say", "Typing", "Image"])
        .limit_by(user, key_per_user_per_type)
        .limit_by(room, |context| KeyParts::from(["room", &context.data().room]))
        .limit(MessageRule::new(images).when(|context| context.message_type() == "Image"))
        .connection_ceiling(Limiter::new(Policy::per_second(100).build()?))
        .max_payload(64 * 1024)
        .on_limit_exceeded(|info| {
            println!("   hook: {:?} of {} over {}", info.kind, info.observed, info.limit);
        })
        .build()?;
    Ok(gate)
}

async fn enter(
    State(sockets): State<Sockets<Member>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Query(member): Query<Member>,
    upgrade: WebSocketUpgrade,
) -> Response {
    sockets.upgrade(upgrade, Peer::new(member).ip(peer.ip()), |_: ReceivedMessage| async {
        // A real server would forward it to all members of the room.
        Some(Message::text(r#"{"type":"Delivered"}"#))
    })
}

#[tokio::main]
async fn main() -> Result<()> {
    let redis = std::env::args().nth(1);
    let first = serve(gate(&engine(redis.as_deref()).await?)?).await?;
    let second = serve(gate(&engine(redis.as_deref()).await?)?).await?;

    say(first, "alice", "Say", 6).await?;
    println!("alice goes to the second server");
    say(second, "alice", "Say", 1).await?;
    say(first, "bob", "Say", 4).await?;
    say(first, "bob", "Image", 3).await?;
    say(first, "carol", "Typing", 3).await
}

/// Serves the chat until the program ends, and returns its address.
async fn serve(gate: Gate<Member>) -> Result<SocketAddr> {
    let router = Router::new().route("/chat", any(enter)).with_state(Sockets::new(gate));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    Ok(address)
}

/// Sends messages of one type sequentially, and prints the replies.
async fn say(address: SocketAddr, user: &str, kind: &str, times: usize) -> Result<()> {
    let url = format!("ws://{address}/chat?user={user}&room=lobby");
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await?;
    for number in 1..=times {
        let text = serde_json::json!({ "type": kind, "payload": { "text": "hello" } });
        socket.send(tungstenite::Message::text(text.to_string())).await?;
        let answer = socket.next().await.context("the server closed the connection")??;
        println!("{user} {kind} {number}: {}", answer.to_text()?);
    }
    socket.close(None).await?;
    Ok(())
}
