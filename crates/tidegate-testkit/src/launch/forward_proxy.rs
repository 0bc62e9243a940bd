//! An HTTP forward proxy: `CONNECT` tunnels for TLS, absolute URLs for plain HTTP.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// Maximum size of a request head in bytes.
const MAX_HEAD: usize = 64 << 10;

/// An HTTP forward proxy on a loopback port. It connects to one server whatever host a request
/// names, so that tests can use hosts that do not exist.
#[derive(Debug)]
pub struct ForwardProxy {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<ProxyRequest>>>,
    _runtime: Runtime,
}

/// A request that a proxy received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRequest {
    /// The request line, such as `CONNECT api.test:443 HTTP/1.1`.
    pub line: String,
    /// The value of the `Proxy-Authorization` header.
    pub authorization: Option<String>,
}

impl ForwardProxy {
    /// Starts a proxy in front of `server`. With `authorization` it refuses requests that do not
    /// have this value in `Proxy-Authorization`.
    ///
    /// # Panics
    /// If no port or no thread is available.
    #[must_use]
    pub fn start(server: SocketAddr, authorization: Option<&str>) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.expect("a free loopback port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let proxy = ProxyServer { server, authorization: authorization.map(str::to_owned), seen };
        let seen = proxy.seen.clone();
        runtime.spawn(async move {
            let proxy = Arc::new(proxy);
            while let Ok((client, _)) = listener.accept().await {
                let proxy = proxy.clone();
                tokio::spawn(async move { proxy.serve(client).await });
            }
        });
        Self { address, seen, _runtime: runtime }
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests received so far.
    #[must_use]
    pub fn requests(&self) -> Vec<ProxyRequest> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct ProxyServer {
    server: SocketAddr,
    authorization: Option<String>,
    seen: Arc<Mutex<Vec<ProxyRequest>>>,
}

impl ProxyServer {
    /// Serves one connection. Later requests on it are forwarded unseen.
    async fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let (head, rest) = read_head(&mut client).await?;
        let line = head.lines().next().unwrap_or_default().to_owned();
        let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let authorization = fields
            .find(|(name, _)| name.eq_ignore_ascii_case("proxy-authorization"))
            .map(|(_, value)| value.trim().to_owned());
        let request = ProxyRequest { line: line.clone(), authorization: authorization.clone() };
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        if self.authorization.is_some() && authorization != self.authorization {
            let refusal =
                b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
            return client.write_all(refusal).await;
        }
        let Ok(mut server) = TcpStream::connect(self.server).await else {
            let refusal = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n";
            return client.write_all(refusal).await;
        };
        if line.starts_with("CONNECT ") {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
        } else {
            server.write_all(in_origin_form(&head).as_bytes()).await?;
            server.write_all(&rest).await?;
        }
        copy_bidirectional(&mut client, &mut server).await.map(drop)
    }
}

/// Reads the head of a request, and returns it with the bytes already read after it.
async fn read_head(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let rest = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), rest));
        }
        let read = client.read_buf(&mut bytes).await?;
        if read == 0 || bytes.len() > MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Rewrites a head with an absolute URL to origin form. It adds `connection: close`, because only
/// the first request of a connection is recorded.
fn in_origin_form(head: &str) -> String {
    let (line, fields) = head.split_once("\r\n").unwrap_or((head, ""));
    let mut words = line.split(' ');
    let (method, url) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |at| &rest[at..]);
    format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n{fields}")
}
