//! Attacks by complete requests that are expensive to handle.

use std::io::Write as _;
use std::sync::LazyLock;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::AsyncWriteExt as _;

use super::Attacker;
use super::connections::read_all;
use crate::attacks::wire::{self, ask, request};

const CALL: &str = "POST /openai/v1/chat/completions";
const JSON: &str = "content-type: application/json\r\n";

/// A hundred megabytes of spaces, in a hundred kilobytes.
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let spaces = vec![b' '; 1 << 20];
    for _ in 0..100 {
        // Writing to a Vec does not fail.
        let _ = encoder.write_all(&spaces);
    }
    encoder.finish().unwrap_or_default()
});

/// Sixteen megabytes of JSON with as many values as fit.
static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut body = br#"{"model":"gpt-4o-mini","messages":[{"role":"user","content":"#.to_vec();
    body.push(b'[');
    while body.len() < 16 << 20 {
        body.extend_from_slice(b"{\"text\":\"a b\"},");
    }
    body.extend_from_slice(b"0]}]}");
    body
});

/// Calls with an unknown key and an unknown model.
pub(super) async fn junk_key(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    for turn in 0..10 {
        let (key, model) = (
            format!("junk-{}-{turn}", attacker.number),
            format!("m-{}", attacker.number * 10 + turn),
        );
        ask(&mut stream, &wire::chat(&key, "", &model, false)).await?;
    }
    Ok(())
}

/// Calls with a new tenant each time.
pub(super) async fn tenant_per_call(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    for turn in 0..10 {
        let tenant = format!(
            "x-tidegate-tenant: t-{}-{turn}\r\nx-tidegate-priority: high\r\n",
            attacker.number
        );
        ask(&mut stream, &wire::chat("sk-greedy", &tenant, "gpt-4o-mini", false)).await?;
    }
    Ok(())
}

/// Bodies that cannot be parsed.
pub(super) async fn unreadable_body(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    let text = br#"{"model":"gpt-4o-mini","messages":[]}"#;
    let wide: Vec<u8> = text.iter().flat_map(|byte| [*byte, 0]).collect();
    let (headers, body): (&str, Vec<u8>) = match attacker.number % 5 {
        0 => ("content-type: application/octet-stream\r\n", text.to_vec()),
        1 => {
            ("content-type: multipart/form-data; boundary=x\r\n", b"--x\r\n\r\n\r\n--x--".to_vec())
        }
        2 => (JSON, [&b"\xEF\xBB\xBF"[..], text].concat()),
        3 => (JSON, [&b"\xFF\xFE"[..], &wide].concat()),
        _ => ("content-type: application/json\r\ncontent-encoding: br, gzip\r\n", text.to_vec()),
    };
    let headers = format!("authorization: Bearer sk-greedy\r\n{headers}");
    ask(&mut stream, &request(CALL, &headers, &body)).await?;
    Ok(())
}

/// A small compressed body that expands to a large one.
pub(super) async fn compression_bomb(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    let headers = "authorization: Bearer sk-greedy\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n";
    ask(&mut stream, &request(CALL, headers, &BOMB)).await?;
    Ok(())
}

/// A large body that takes long to parse.
pub(super) async fn large_json(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    let headers = "authorization: Bearer sk-greedy\r\ncontent-type: application/json\r\n";
    ask(&mut stream, &request(CALL, headers, &LARGE)).await?;
    Ok(())
}

/// Methods, overrides, upgrades and origins that a gateway must reject.
pub(super) async fn odd_method(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    let (line, headers) = match attacker.number % 6 {
        0 => ("TRACE /openai/v1/models", "max-forwards: 0\r\n"),
        1 => ("CONNECT elsewhere:443", ""),
        2 => ("GET /openai/v1/chat/completions", "x-http-method-override: POST\r\n"),
        3 => ("GET /openai/v1/realtime", "connection: upgrade\r\nupgrade: websocket\r\n"),
        4 => (
            "GET /openai/v1/models",
            "sec-fetch-site: cross-site\r\norigin: http://evil.example\r\n",
        ),
        _ => ("PUT /openai/v1/anything", "x-method-override: DELETE\r\n"),
    };
    let headers = format!("authorization: Bearer sk-greedy\r\nconnection: close\r\n{headers}");
    stream.write_all(&request(line, &headers, b"")).await?;
    read_all(&mut stream).await
}

/// A batch of invalid requests.
pub(super) async fn batch(attacker: Attacker) -> Result<()> {
    let mut stream = attacker.connect().await?;
    let item = r#"{"op":"take","key":"","limit":"no-such-limit","cost":-1}"#;
    let items = vec![item; 330].join(",");
    let body = format!("{{\"requests\":[{items}]}}");
    ask(&mut stream, &request("POST /v1/batch", JSON, body.as_bytes())).await?;
    Ok(())
}
