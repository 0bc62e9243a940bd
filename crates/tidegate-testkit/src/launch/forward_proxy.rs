//! An HTTP proxy as companies have them: tunnels for TLS, whole URLs for the rest.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// The longest head that is read.
const MAX_HEAD: usize = 64 << 10;

/// An HTTP proxy on a loopback port. Whatever host it is asked for, it leads to one server, so that
/// hosts can be asked for that exist nowhere.
#[derive(Debug)]
pub struct ForwardProxy {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<ProxyRequest>>>,
    _runtime: Runtime,
}

/// What a proxy was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRequest {
    /// The first line, such as `CONNECT api.test:443 HTTP/1.1`.
    pub line: String,
    /// The value of `Proxy-Authorization`.
    pub authorization: Option<String>,
}

impl ForwardProxy {
    /// A proxy before `server`. With `authorization` it refuses whoever does not bring that value of
    /// `Proxy-Authorization`.
    ///
    /// # Panics
    /// When there is no free port, or no thread to be had.
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

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it was asked so far.
    #[must_use]
    pub fn seen(&self) -> Vec<ProxyRequest> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct ProxyServer {
    server: SocketAddr,
    authorization: Option<String>,
    seen: Arc<Mutex<Vec<ProxyRequest>>>,
}

impl ProxyServer {
    /// Serves one connection. Its later requests, if there are any, go the same way.
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

/// The head of a request, and what came after it already.
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

/// A head whose first line has a whole URL, with the path alone, for the server itself. It asks for
/// the end of the connection, since only the first request on it is seen.
fn in_origin_form(head: &str) -> String {
    let (line, fields) = head.split_once("\r\n").unwrap_or((head, ""));
    let mut words = line.split(' ');
    let (method, url) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |at| &rest[at..]);
    format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n{fields}")
}
