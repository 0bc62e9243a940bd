//! A caller that is still sending a large body reads why it was refused, instead of a reset
//! connection; and it cannot send forever.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::fixtures::{Program, Upstream, small_response};

const MIB: usize = 1 << 20;

/// What the program discards at most after a refusal, and what the kernel may buffer on both sides.
const MOST_DISCARDED: usize = (128 + 32) * MIB;

fn started() -> Program {
    let upstream = Upstream::start(|_| small_response());
    // The first call spends the whole quota, and nobody has the token of the admin API.
    let program = Program::start(&format!(
        "[providers.openai]\nbase_url = \"{}\"\nrequests_per_minute = 1\nburst_capacity = 1\n\
         [admin]\nwrite_tokens = [\"sha256:{}\"]\n",
        upstream.url,
        "0".repeat(64)
    ));
    assert_eq!(program.post("/openai/v1/chat/completions", NOW, CHAT).status(), 200);
    program
}

const CHAT: &[u8] = br#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#;
const NOW: &[(&str, &str)] = &[("authorization", "Bearer sk-a"), ("x-tidegate-max-wait-ms", "0")];
const JSON: &str = "content-type: application/json\r\n";

/// Sends a head and `size` bytes, and only then reads until the program closes. Returns what it
/// read.
fn upload(to: SocketAddr, head: &str, size: usize) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "{head}host: {to}\r\ncontent-length: {size}\r\n\r\n").unwrap();
    let piece = vec![b' '; MIB];
    for sent in 0..size / MIB {
        let written = stream.write_all(&piece);
        assert!(written.is_ok(), "{head}: {written:?} after {sent} MiB");
    }
    let mut response = String::new();
    let read = stream.read_to_string(&mut response);
    assert!(read.is_ok(), "{head}: {read:?} after {response:?}");
    response
}

/// Each refusal needs no body, or not all of it.
#[test]
fn callers_that_send_everything_first_read_why_they_are_refused() {
    let program = started();
    let (http, admin) = (program.http, program.admin);
    let authorized = "authorization: Bearer sk-a\r\nx-tidegate-max-wait-ms: 0\r\n";
    let chat = format!("POST /openai/v1/chat/completions HTTP/1.1\r\n{authorized}{JSON}");
    let file = "content-type: multipart/form-data; boundary=b\r\n";
    let file = format!("POST /openai/v1/files HTTP/1.1\r\n{authorized}{file}");
    let long = format!("POST /v1/take HTTP/1.1\r\nx-long: {}\r\n", "x".repeat(32 * 1024));
    for (to, head, size, status) in [
        // First, while the quota of the minute is used up.
        (http, file, 50 * MIB, 429),
        (http, format!("POST /v1/take HTTP/1.1\r\n{JSON}"), 50 * MIB, 413),
        (http, chat, 80 * MIB, 413),
        (http, "POST /v1/take HTTP/1.1\r\n".to_owned(), 50 * MIB, 415),
        (http, format!("POST /nothing HTTP/1.1\r\n{JSON}"), 50 * MIB, 404),
        (http, long, 50 * MIB, 431),
        (admin, format!("PATCH /admin/config HTTP/1.1\r\n{JSON}"), 50 * MIB, 401),
    ] {
        let response = upload(to, &head, size);
        let start = format!("HTTP/1.1 {status} ");
        assert!(response.starts_with(&start), "{head}: {response}");
        let (head, _) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("connection: close"), "{head}");
    }
}

/// Nothing is discarded for a caller that keeps sending beyond the bound.
#[test]
fn a_refused_caller_cannot_send_forever() {
    let program = started();
    let mut stream = TcpStream::connect(program.http).unwrap();
    let host = program.http;
    let length = usize::MAX / 2;
    write!(stream, "POST /v1/take HTTP/1.1\r\n{JSON}host: {host}\r\n").unwrap();
    write!(stream, "content-length: {length}\r\n\r\n").unwrap();
    let piece = vec![b' '; MIB];
    let mut sent = 0;
    while stream.write_all(&piece).is_ok() {
        sent += MIB;
        assert!(sent <= MOST_DISCARDED, "{sent}");
    }
}

/// The rest of a small body that a handler left unread does not close the connection.
#[test]
fn a_small_unread_body_keeps_the_connection() {
    let program = started();
    let mut caller = super::fixtures::Caller::at(program.http, super::fixtures::LOCALHOST);
    for _ in 0..3 {
        let refused = caller.request("POST", "/nothing", &[], b"{}");
        assert_eq!((refused.status(), refused.header("connection")), (404, None));
    }
    caller.stream.shutdown(Shutdown::Write).unwrap();
    assert!(caller.read().unwrap().is_none());
}
