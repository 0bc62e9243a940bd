//! Attacks that hold connections, or break them.

use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;

use super::super::wire;
use super::Attacker;

/// What a slow body announces, and how much of it comes at once.
const ANNOUNCED: usize = 64 * 1_024 * 1_024;
const AT_ONCE: usize = ANNOUNCED - 64 * 1_024;

/// A head of which a byte comes every half second.
pub(super) async fn slow_head(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    stream
        .write_all(b"POST /openai/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx: ")
        .await?;
    loop {
        stream.write_all(b"x").await?;
        sleep(Duration::from_millis(500)).await;
    }
}

/// A large body that is nearly complete, and then comes a byte at a time.
pub(super) async fn slow_body(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    let head = format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n\
         authorization: Bearer sk-greedy\r\ncontent-type: application/json\r\n\
         content-length: {ANNOUNCED}\r\n\r\n{{\"model\":\"m\",\"messages\":\""
    );
    stream.write_all(head.as_bytes()).await?;
    let piece = vec![b'x'; 64 * 1_024];
    for _ in 0..AT_ONCE / piece.len() {
        stream.write_all(&piece).await?;
    }
    loop {
        stream.write_all(b"x").await?;
        sleep(Duration::from_millis(100)).await;
    }
}

/// A connection that has asked something small once, and then says nothing for as long as it may.
pub(super) async fn idle(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
    read_all(&mut stream).await
}

/// Many requests at once, whose answers are read a byte a second.
pub(super) async fn slow_reader(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    let request = wire::chat("sk-greedy", "", "gpt-4o-mini", attacker.number.is_multiple_of(2));
    stream.write_all(&request.repeat(20)).await?;
    loop {
        stream.read_u8().await?;
        sleep(Duration::from_secs(1)).await;
    }
}

/// Bytes that are no HTTP.
pub(super) async fn garbage(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    let mut state = attacker.number | 1;
    let mut bytes = Vec::with_capacity(4_096);
    for _ in 0..512 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    stream.write_all(&bytes).await?;
    read_all(&mut stream).await
}

/// A request whose sender closes its side at once, before or after the body.
pub(super) async fn half_closed(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    let request = wire::chat("sk-greedy", "", "gpt-4o-mini", false);
    let end = if attacker.number.is_multiple_of(2) { request.len() } else { request.len() - 20 };
    stream.write_all(&request[..end]).await?;
    stream.shutdown().await?;
    read_all(&mut stream).await
}

/// Reads until the other side closes.
pub(super) async fn read_all(stream: &mut tokio::net::TcpStream) -> Result<()> {
    let mut buffer = [0; 8_192];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}
