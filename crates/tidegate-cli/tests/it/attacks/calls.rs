//! Every call that costs something is charged, whatever its path, method or body.

use std::fmt::Write as _;
use std::io::Write as _;
use std::thread;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use tidegate_testkit::launch::wait_until;

use super::fixtures::{Caller, LOCALHOST, Message, Program, Upstream, UpstreamResponse};

/// Number of requests per attack.
const TIMES: usize = 20;
/// Six requests per minute, and a few more that are refilled on a slow machine.
const MAX_REACHED: usize = 9;
/// Rejects a call instead of queueing it.
const AT_ONCE: (&str, &str) = ("x-tidegate-max-wait-ms", "0");
const JSON: (&str, &str) = ("content-type", "application/json");
const PROMPT: &[u8] = br#"{"model":"m","prompt":"hello","input":"hello"}"#;

/// A request that is repeated.
struct Attack {
    dialect: &'static str,
    method: &'static str,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: &'static [u8],
}

const fn post(dialect: &'static str, path: &'static str) -> Attack {
    Attack { dialect, method: "POST", path, headers: &[JSON], body: PROMPT }
}

const fn method(method: &'static str, path: &'static str, body: &'static [u8]) -> Attack {
    Attack { dialect: "openai", method, path, headers: &[JSON], body }
}

const fn get(headers: &'static [(&'static str, &'static str)], path: &'static str) -> Attack {
    Attack { dialect: "openai", method: "GET", path, headers, body: b"" }
}

/// Runs each attack against its own provider and returns how many requests reached the upstream.
fn reached(attacks: &[Attack], limit: &str) -> Vec<usize> {
    let upstream = Upstream::start(|_| UpstreamResponse::json(200, "{}"));
    let mut config = String::new();
    for (number, attack) in attacks.iter().enumerate() {
        let (url, dialect) = (&upstream.url, attack.dialect);
        write!(
            config,
            "[providers.p{number}]\ndialect = \"{dialect}\"\nbase_url = \"{url}/case{number}\"\n\
             {limit}\n"
        )
        .unwrap();
    }
    let program = Program::start(&config);
    for (number, attack) in attacks.iter().enumerate() {
        for _ in 0..TIMES {
            let path = format!("/p{number}{}", attack.path);
            let headers = [attack.headers, &[AT_ONCE]].concat();
            program.request(attack.method, &path, &headers, attack.body);
        }
    }
    let seen = upstream.seen();
    let begins = |message: &Message, number: usize| {
        let target = message.start.split(' ').nth(1).unwrap();
        target.starts_with(&format!("/case{number}/"))
    };
    (0..attacks.len())
        .map(|number| seen.iter().filter(|message| begins(message, number)).count())
        .collect()
}

fn assert_charged(attacks: &[Attack]) {
    let reached = reached(attacks, "requests_per_minute = 6");
    for (attack, reached) in attacks.iter().zip(reached) {
        let Attack { dialect, method, path, .. } = attack;
        assert!(
            (1..=MAX_REACHED).contains(&reached),
            "{dialect} {method} {path}: {reached} of {TIMES}"
        );
    }
}

#[test]
fn unknown_paths_are_charged() {
    assert_charged(&[
        post("openai", "/v1/responses/compact"),
        post("openai", "/v1/threads/x/runs"),
        post("openai", "/v1/batches"),
        post("openai", "/v1/files"),
        post("openai", "/v1/realtime/sessions"),
        post("openai", "/score"),
        post("openai", "/generate"),
        post("anthropic", "/v1/messages/next"),
        post("anthropic", "/v1/skills"),
        post("gemini", "/v1beta/models/gemini-2.5-flash:generateAnswer"),
        post("gemini", "/v1beta/models/gemini-2.5-flash:anything"),
        post("gemini", "/upload/v1beta/files"),
        post("ollama", "/api/pull"),
        post("ollama", "/api/create"),
        post("azure", "/openai/deployments/d/new?api-version=1"),
        post("compatible", "/v2/embed"),
    ]);
}

#[test]
fn all_methods_except_reads_are_charged() {
    assert_charged(&[
        method("PUT", "/v1/chat/completions", PROMPT),
        method("PATCH", "/v1/responses", PROMPT),
        method("DELETE", "/v1/chat/completions", b""),
        method("BREW", "/v1/chat/completions", PROMPT),
        method("get", "/v1/chat/completions", PROMPT),
        method("POST", "/v1/unknown", b""),
        method("GET", "/v1/chat/completions", PROMPT),
        method("OPTIONS", "/generate", PROMPT),
    ]);
}

#[test]
fn free_paths_cannot_be_spoofed() {
    assert_charged(&[
        post("openai", "/v1/chat/completions/x/cancel"),
        post("openai", "/v1/responses/x/cancel"),
        method("POST", "/v1/responses/x/cancel/", b""),
        method("POST", "/v1/responses/x%2Fy/cancel", b""),
        method("POST", "/v1/responses/x;y/cancel", b""),
        method("POST", "/v1//responses/x/cancel", b""),
        method("POST", "/v1/RESPONSES/x/cancel", b""),
        method("POST", "/v1/responses/x/cancel?path=/v1/responses", b""),
        method("POST", "/v1/responses/x/cancel?_method=PUT", b""),
        method("DELETE", "/v1/files/x/chat/completions", b""),
        method("DELETE", "/v1/files/x?_method=POST", b""),
        method("DELETE", "/v1/files/x", PROMPT),
    ]);
}

#[test]
fn method_override_headers_are_charged_and_removed() {
    const NAMES: [&str; 6] = [
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
        "X_HTTP_Method_Override",
        "X.HTTP.Method.Override",
        "x-original-url",
    ];
    const CHAT: &str = "/v1/chat/completions?prompt=hello";
    assert_charged(&[
        get(&[(NAMES[0], "POST")], CHAT),
        get(&[(NAMES[1], "POST")], CHAT),
        get(&[(NAMES[2], "POST")], CHAT),
        get(&[(NAMES[3], "POST")], CHAT),
        get(&[(NAMES[4], "POST")], CHAT),
        get(&[], "/v1/chat/completions?_method=POST"),
        get(&[], "/v1/models?%5Fmethod=POST"),
    ]);
    let upstream = Upstream::start(|_| UpstreamResponse::json(200, "{}"));
    let url = &upstream.url;
    let program = Program::start(&format!("[providers.openai]\nbase_url = \"{url}\"\n"));
    for name in NAMES {
        for (method, path) in [("GET", "/openai/v1/models"), ("POST", "/openai/v1/responses")] {
            program.request(method, path, &[(name, "POST"), JSON], b"");
        }
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), 2 * NAMES.len());
    for message in seen {
        let is_override = |name: &str| name.contains("method") || name.contains("original");
        let names = message.headers.iter().filter(|(name, _)| is_override(name)).count();
        assert_eq!(names, 0, "{message:?}");
    }
}

/// Returns an embeddings request of about ten thousand tokens, which has no output to charge.
fn long_request() -> String {
    let words = "the tide comes in and the tide goes out, ".repeat(1_000);
    format!(r#"{{"model":"m","input":"{words}"}}"#)
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// Returns a Zstandard frame with uncompressed blocks.
fn zstd(text: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
    let blocks = text.chunks(16 * 1_024);
    let last = blocks.len() - 1;
    for (number, block) in blocks.enumerate() {
        let head = u32::try_from(block.len()).unwrap() << 3 | u32::from(number == last);
        frame.extend(&head.to_le_bytes()[..3]);
        frame.extend(block);
    }
    frame
}

/// Returns a Brotli stream with uncompressed data.
fn brotli(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len() - 1).unwrap();
    assert!(length < 1 << 16);
    let head = length << 4 | 1 << 20;
    [&head.to_le_bytes()[..3], text, &[0b11]].concat()
}

fn chunked(text: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for piece in text.chunks(10_000) {
        body.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        body.extend(piece);
        body.extend(b"\r\n");
    }
    body.extend(b"0\r\n\r\n");
    body
}

/// Returns a multipart form with a text.
fn form(text: &str) -> Vec<u8> {
    format!("--x\r\ncontent-disposition: form-data; name=\"prompt\"\r\n\r\n{text}\r\n--x--\r\n")
        .into_bytes()
}

/// Name, headers, body, and whether the body can be read.
type UnusualBody = (&'static str, Vec<(&'static str, &'static str)>, Vec<u8>, Readable);

/// Returns bodies of about ten thousand tokens in unusual formats.
fn unusual_bodies() -> Vec<UnusualBody> {
    const TYPE: &str = "content-type";
    const CODING: &str = "content-encoding";
    const CHUNKED: (&str, &str) = ("transfer-encoding", "chunked");
    let request = long_request();
    let text = request.as_bytes();
    let utf_16: Vec<u8> = request.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let cut = &text[..text.len() - 3];
    vec![
        ("octets", vec![(TYPE, "application/octet-stream")], text.to_vec(), Readable::Yes),
        ("audio", vec![(TYPE, "audio/wav")], text.to_vec(), Readable::Yes),
        ("mark", vec![JSON], [b"\xef\xbb\xbf", text].concat(), Readable::Yes),
        ("utf-16", vec![JSON], utf_16.clone(), Readable::Yes),
        ("utf-16 with a mark", vec![JSON], [b"\xff\xfe", &utf_16[..]].concat(), Readable::Yes),
        ("gzip", vec![JSON, (CODING, "gzip")], gzip(text), Readable::Yes),
        ("GZIP twice", vec![JSON, (CODING, "GZIP, x-gzip")], gzip(&gzip(text)), Readable::Yes),
        ("deflate", vec![JSON, (CODING, "deflate")], zlib(text), Readable::Yes),
        ("br", vec![JSON, (CODING, "br")], brotli(text), Readable::Yes),
        ("zstd", vec![JSON, (CODING, "identity, zstd")], zstd(text), Readable::Yes),
        ("form", vec![(TYPE, "multipart/form-data; boundary=x")], form(&request), Readable::No),
        ("garbage before", vec![JSON], [b"x", text].concat(), Readable::No),
        ("garbage behind", vec![JSON], [text, b"x"].concat(), Readable::No),
        ("a list", vec![JSON], [b"[", text, b"]"].concat(), Readable::No),
        ("a lie", vec![JSON, (CODING, "br")], vec![0xff; 30_000], Readable::No),
        ("an unknown coding", vec![JSON, (CODING, "compress")], vec![7; 30_000], Readable::No),
        ("no text", vec![(TYPE, "text/plain")], vec![b'x'; 40_000], Readable::No),
        (
            "octets in chunks",
            vec![(TYPE, "application/octet-stream"), CHUNKED],
            chunked(&[b"{\"x\":\"".as_slice(), &[b'y'; 40_000]].concat()),
            Readable::No,
        ),
        ("cut", vec![JSON], [cut, &[b'y'; 30_000]].concat(), Readable::No),
    ]
}

/// Whether the tokens of a body are counted or estimated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readable {
    Yes,
    No,
}

#[test]
fn unusual_body_is_charged_by_its_tokens() {
    let upstream = Upstream::start(|_| UpstreamResponse::json(200, "{}"));
    let bodies = unusual_bodies();
    let mut config = String::new();
    for number in 0..bodies.len() {
        let url = &upstream.url;
        write!(
            config,
            "[providers.p{number}]\ndialect = \"openai\"\nbase_url = \"{url}\"\n\
             tokens_per_minute = 60_000\n"
        )
        .unwrap();
    }
    let program = Program::start(&config);
    for (number, (name, headers, body, readable)) in bodies.iter().enumerate() {
        let headers = [headers.as_slice(), &[AT_ONCE]].concat();
        let path = format!("/p{number}/v1/embeddings");
        let before = upstream.count();
        let answers: Vec<Message> =
            (0..TIMES).map(|_| program.request("POST", &path, &headers, body)).collect();
        let reached = upstream.count() - before;
        assert!((1..=MAX_REACHED).contains(&reached), "{name}: {reached} of {TIMES}");
        let refused = answers.last().unwrap();
        assert_eq!(refused.status(), 429, "{name}");
        assert_eq!(refused.header("x-tidegate-limited-by"), Some("tokens"), "{name}");
        let expected = (*readable == Readable::No).then_some("true");
        for answer in answers {
            assert_eq!(answer.header("x-tidegate-tokens-estimated"), expected, "{name}");
        }
    }
}

#[test]
fn compression_bomb_is_charged_and_forwarded_unchanged() {
    let upstream = Upstream::start(|_| UpstreamResponse::json(200, "{}"));
    let url = &upstream.url;
    let program = Program::start(&format!(
        "[providers.openai]\nbase_url = \"{url}\"\ntokens_per_minute = 60_000\n"
    ));
    let bomb = gzip(&vec![b' '; 32 << 20]);
    let headers = [JSON, ("content-encoding", "gzip"), AT_ONCE];
    for path in ["/openai/v1/embeddings", "/openai/v1/unknown"] {
        for _ in 0..TIMES {
            program.request("POST", path, &headers, &bomb);
        }
    }
    let seen = upstream.seen();
    assert!(seen.len() <= 2, "{}", seen.len());
    assert!(seen.iter().all(|message| message.body == bomb));
}

#[test]
fn chunked_upload_is_charged_by_its_size() {
    let upstream = Upstream::start(|_| UpstreamResponse::json(200, "{}"));
    let url = &upstream.url;
    let program = Program::start(&format!(
        "[providers.openai]\nbase_url = \"{url}\"\ntokens_per_minute = 600_000\n"
    ));
    let headers =
        [("content-type", "application/octet-stream"), ("transfer-encoding", "chunked"), AT_ONCE];
    let body = chunked(&vec![b'x'; 2 << 20]);
    let answers: Vec<Message> = (0..TIMES)
        .map(|_| program.request("POST", "/openai/v1/unknown", &headers, &body))
        .collect();
    assert!((1..=4).contains(&upstream.count()), "{}", upstream.count());
    for answer in answers {
        assert_eq!(answer.header("x-tidegate-tokens-estimated"), Some("true"));
    }
}

#[test]
fn disconnected_caller_is_charged_for_what_it_sent() {
    let upstream = Upstream::start(|request| {
        if request.body.len() > 1 << 20 {
            // The caller has disconnected by then.
            thread::park();
        }
        UpstreamResponse::json(200, "{}")
    });
    let url = &upstream.url;
    let program = Program::start(&format!(
        "[providers.openai]\nbase_url = \"{url}\"\ntokens_per_minute = 60_000\n"
    ));
    let mut leaving = Caller::at(program.http, LOCALHOST);
    let head = format!(
        "POST /openai/v1/unknown HTTP/1.1\r\nhost: {}\r\n\
         content-type: application/octet-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        program.http
    );
    leaving.write(head.as_bytes()).unwrap();
    leaving.write(&chunked(&vec![b'x'; 2 << 20])).unwrap();
    wait_until("the long request to arrive", || (upstream.count() == 1).then_some(()));
    drop(leaving);
    let mut others = 0;
    wait_until("the long request to be charged", || {
        others += 1;
        let headers = [JSON, AT_ONCE];
        let small = program.request("POST", "/openai/v1/embeddings", &headers, PROMPT);
        (small.status() == 429).then_some(())
    });
    // By themselves, small calls exhaust the limit only after thousands.
    assert!(others < 500, "{others}");
}
