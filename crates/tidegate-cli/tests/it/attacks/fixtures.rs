//! Test fixtures: a fake upstream that records requests, the program in front of it, and callers
//! that send raw bytes from any loopback address.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::program::{Serving, serve};

/// Default address of callers.
pub(super) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Read timeout of callers.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// An HTTP message: a request at the upstream, or a response at the caller.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    /// The request line or the status line.
    pub(super) start: String,
    /// Headers in order, with names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// Returns the status of a response.
    pub(super) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap()
    }

    /// Returns the first header of this name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads the next message of a connection; `None` at its end.
    pub(super) fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let mut message = Self::default();
        if reader.read_line(&mut message.start)? == 0 {
            return Ok(None);
        }
        message.start.truncate(message.start.trim_end().len());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            message.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        message.body = message.read_body(reader)?;
        Ok(Some(message))
    }

    fn read_body(&self, reader: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if self.header("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let size = usize::from_str_radix(line.trim(), 16)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                let mut chunk = vec![0; size + 2];
                reader.read_exact(&mut chunk)?;
                chunk.truncate(size);
                body.extend(chunk);
                if size == 0 {
                    return Ok(body);
                }
            }
        }
        let length = self.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        body.resize(length, 0);
        reader.read_exact(&mut body)?;
        Ok(body)
    }
}

/// A response of the upstream.
#[derive(Clone, Debug)]
pub(super) struct UpstreamResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl UpstreamResponse {
    /// Creates a JSON response.
    pub(super) fn json(status: u16, body: &str) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { status, headers, body: body.as_bytes().to_vec() }
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        let mut head =
            format!("HTTP/1.1 {} X\r\ncontent-length: {}\r\n", self.status, self.body.len());
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(&[head.as_bytes(), b"\r\n", &self.body].concat())
    }
}

/// Returns a chat completion with a usage of two tokens.
pub(super) fn small_response() -> UpstreamResponse {
    UpstreamResponse::json(
        200,
        r#"{"choices":[{"message":{"role":"assistant","content":"ok"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#,
    )
}

/// A fake provider.
#[derive(Clone)]
pub(super) struct Upstream {
    pub(super) url: String,
    seen: Arc<Mutex<Vec<Message>>>,
}

impl Upstream {
    /// Starts an upstream that responds with the given function, with one thread per connection.
    pub(super) fn start(
        answer: impl Fn(&Message) -> UpstreamResponse + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let upstream = Self { url, seen: Arc::default() };
        let (seen, answer) = (upstream.seen.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (seen.clone(), answer.clone());
                thread::spawn(move || serve_connection(stream, &seen, &*answer));
            }
        });
        upstream
    }

    /// Returns the requests received so far.
    pub(super) fn seen(&self) -> Vec<Message> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the number of requests received so far.
    pub(super) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

fn serve_connection(
    mut stream: TcpStream,
    seen: &Mutex<Vec<Message>>,
    answer: &dyn Fn(&Message) -> UpstreamResponse,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Ok(Some(request)) = Message::read(&mut reader) {
        seen.lock().unwrap().push(request.clone());
        if answer(&request).write(&mut stream).is_err() {
            return;
        }
    }
}

/// A running program with a configuration file.
pub(super) struct Program {
    pub(super) serving: Serving,
    /// Address of the HTTP listener.
    pub(super) http: SocketAddr,
    /// Address of the admin listener.
    pub(super) admin: SocketAddr,
    _folder: TempDir,
}

impl Program {
    pub(super) fn start(config: &str) -> Self {
        Self::start_with(config, |_| {})
    }

    /// Starts the program with a modified command, such as an additional environment variable.
    pub(super) fn start_with(
        config: &str,
        change: impl FnOnce(&mut std::process::Command),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tidegate.toml"), config).unwrap();
        let mut command = serve(folder.path(), &[]);
        change(&mut command);
        let serving = Serving::start(&mut command);
        let address = |url: &str| url.strip_prefix("http://").unwrap().parse().unwrap();
        let (http, admin) = (address(&serving.url), address(&serving.admin));
        Self { serving, http, admin, _folder: folder }
    }

    /// Posts JSON to the HTTP listener.
    pub(super) fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Message {
        self.request(
            "POST",
            path,
            &[headers, &[("content-type", "application/json")]].concat(),
            body,
        )
    }

    /// Sends a request to the HTTP listener on a new connection.
    pub(super) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Message {
        Caller::at(self.http, LOCALHOST).request(method, path, headers, body)
    }
}

/// A caller's connection.
pub(super) struct Caller {
    pub(super) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Caller {
    /// Connects from an address of the loopback range.
    pub(super) fn at(listener: SocketAddr, from: IpAddr) -> Self {
        Self::try_at(listener, from).unwrap()
    }

    pub(super) fn try_at(listener: SocketAddr, from: IpAddr) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(from, 0))?;
            socket.connect(listener).await?.into_std()
        })?;
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, reader })
    }

    /// Writes raw bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads the next response; `None` if the connection was closed before it.
    pub(super) fn read(&mut self) -> io::Result<Option<Message>> {
        Message::read(&mut self.reader)
    }

    /// Sends a request and reads its response.
    pub(super) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Message {
        let host = self.stream.peer_addr().unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let has_length = headers.iter().any(|(name, _)| {
            name.eq_ignore_ascii_case("content-length")
                || name.eq_ignore_ascii_case("transfer-encoding")
        });
        if !has_length {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        self.write(&[head.as_bytes(), b"\r\n", body].concat()).unwrap();
        self.read().unwrap().unwrap()
    }
}
