//! Attacks that occupy or break connections.

use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;

use super::super::wire;
use super::Attacker;

/// Announced length of a slow body, and the part that is sent immediately.
const ANNOUNCED: usize = 64 * 1_024 * 1_024;
const AT_ONCE: usize = ANNOUNCED - 64 * 1_024;

/// Sends one byte of a head every half second.
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

/// Sends most of a large body, then one byte at a time.
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

/// Sends one small request, then keeps the connection idle as long as possible.
pub(super) async fn idle(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
    read_all(&mut stream).await
}

/// Sends many requests, and reads the responses at one byte per second.
pub(super) async fn slow_reader(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    let request = wire::chat("sk-greedy", "", "gpt-4o-mini", attacker.number.is_multiple_of(2));
    stream.write_all(&request.repeat(20)).await?;
    loop {
        stream.read_u8().await?;
        sleep(Duration::from_secs(1)).await;
    }
}

/// Sends bytes that are not HTTP.
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

/// Half-closes the connection before or after the body of a request.
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
