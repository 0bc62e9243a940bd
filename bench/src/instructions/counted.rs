//! One run under valgrind: the program, a provider, and sequential requests.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::child::Program;
use crate::measure::as_float;

/// Number of requests of the short and of the long run.
const REQUESTS: [u64; 2] = [500, 4_500];

/// The measured requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// A chat call through the gateway without streaming, with limits that are never reached.
    GatewayCall,
    /// `POST /v1/take` of one key.
    Take,
}

impl Request {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::GatewayCall => "gateway call",
            Self::Take => "`POST /v1/take`",
        }
    }

    fn bytes(self) -> Vec<u8> {
        let (path, key, body) = match self {
            Self::GatewayCall => (
                "/openai/v1/chat/completions",
                "authorization: Bearer sk-nobody\r\n",
                r#"{"model":"gpt-4o-mini","max_tokens":200,"messages":[{"role":"system","content":"You are a harbour master."},{"role":"user","content":"When does the tide turn, and how high does it stand?"}]}"#,
            ),
            Self::Take => ("/v1/take", "", r#"{"key":"alice","limit":"client","cost":1}"#),
        };
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{key}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

/// Instructions per request.
pub(super) fn count(program: &Path, request: Request) -> Result<f64> {
    let [few, many] = REQUESTS;
    let [short, long] = [collected(program, request, few)?, collected(program, request, many)?];
    Ok(as_float(long.saturating_sub(short)) / as_float(many - few))
}

/// Instructions of a program run with this many requests.
fn collected(program: &Path, request: Request, requests: u64) -> Result<u64> {
    let mut command = Command::new(std::env::current_exe()?);
    let (_provider, provider) = Program::start(command.arg("gateway-upstream"))?;
    let folder = tempfile::Builder::new().prefix("tidegate-instructions-").tempdir()?;
    let settings = format!(
        "[providers.openai]\nbase_url = \"http://{provider}\"\nrequests_per_minute = 4000000000\n\
         tokens_per_minute = 4000000000\nmax_concurrent_requests = 100\n\
         [limits.client]\ncapacity = 1000000\nrate = \"1000000/s\"\n"
    );
    fs::write(folder.path().join("tidegate.toml"), settings)?;
    let log = folder.path().join("log");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    command.args(["serve", "--config", "tidegate.toml", "--database", "none"]);
    for listener in ["--http", "--admin", "--grpc", "--resp"] {
        command.args([listener, "127.0.0.1:0"]);
    }
    command.current_dir(folder.path()).stderr(File::create(&log)?);
    let (mut running, line) = Program::start(&mut command).context("is valgrind installed?")?;
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let address = line.strip_prefix("http://").and_then(|address| address.parse().ok());
    ask(
        address.with_context(|| format!("tidegate printed no address: {}", said()))?,
        request,
        requests,
    )?;
    running.stop()?;
    let text = said();
    let number = text.lines().find_map(|line| Some(line.split_once("Collected :")?.1.trim()));
    let number = number.with_context(|| format!("valgrind printed no number: {text}"))?;
    Ok(number.parse()?)
}

/// Sends requests sequentially on one connection.
fn ask(address: SocketAddr, request: Request, requests: u64) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (bytes, mut buffer) = (request.bytes(), vec![0; 64 * 1_024]);
    for _ in 0..requests {
        stream.write_all(&bytes)?;
        let mut length = 0;
        while !is_whole(&buffer[..length]) {
            let read = stream.read(&mut buffer[length..])?;
            ensure!(read > 0, "the connection was closed before the end of a response");
            length += read;
        }
        let answer = String::from_utf8_lossy(&buffer[..length]);
        ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    Ok(())
}

/// Whether a response with a length is complete.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= end + 4 + length)
}
