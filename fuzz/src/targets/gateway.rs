//! A call through the gateway in memory, with any request and any response of the provider.
//!
//! This covers targets, credentials, request options, bodies, content codings, events, usage and
//! errors.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use tidegate::clock::TokioClock;
use tidegate::{Engine, MemoryStore};
use tidegate_gateway::{Gateway, GatewayBuilder, RequestBody, Upstream};
use tidegate_providers::{Credential, Dialect};

use crate::input;
use crate::runtime::block_on;

const CALLER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Separates the request from the response in an input.
const SEPARATOR: &[u8] = b"\n==\n";
/// Size of the pieces of a response body.
const PIECE: usize = 61;
/// Hop-by-hop headers, which must not be forwarded.
const HOPS: [&str; 6] =
    ["connection", "keep-alive", "proxy-authorization", "te", "transfer-encoding", "upgrade"];

/// `METHOD TARGET`, headers, an empty line, a body; `==`; a status, headers, an empty line, a body.
pub(super) fn call(bytes: &[u8]) {
    let (asked, answered) = input::split(bytes, SEPARATOR);
    let (Some(request), Some(answer)) = (request(asked), Answer::read(answered)) else { return };
    block_on(async {
        let response = gateway(answer).handle(request, CALLER).await;
        // A truncated body is a valid result for some inputs.
        let _ = response.into_body().collect().await;
    });
}

fn request(bytes: &[u8]) -> Option<Request<Full<Bytes>>> {
    let (line, rest) = input::text_line(bytes)?;
    let (method, target) = line.split_once(' ')?;
    let (headers, body) = input::headers(rest);
    let mut request = Request::new(Full::new(Bytes::copy_from_slice(body)));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).ok()?;
    *request.uri_mut() = target.parse::<Uri>().ok()?;
    *request.headers_mut() = headers;
    Some(request)
}

/// Four providers, one per dialect family, with the same response.
fn gateway(answer: Answer) -> Gateway {
    let store = MemoryStore::builder().max_memory(1 << 20).clock(TokioClock::new());
    let http = tower::service_fn(move |request| {
        let answer = answer.clone();
        async move { Ok::<_, Infallible>(answer.to(request).await) }
    });
    let upstream =
        |name, dialect| Upstream::new(name, dialect, "http://provider.test/base").unwrap();
    let openai = upstream("openai", Dialect::OpenAi);
    let upstreams = [
        openai.credential(Credential::new("sk-configured")).unwrap(),
        upstream("anthropic", Dialect::Anthropic),
        upstream("gemini", Dialect::Gemini),
        upstream("ollama", Dialect::Ollama),
    ];
    let builder = Gateway::builder(&Engine::on(store.build().unwrap())).http(http);
    upstreams.into_iter().fold(builder, GatewayBuilder::upstream).build().unwrap()
}

/// Builds the response of the provider.
#[derive(Clone)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (status, rest) = input::line(bytes);
        let status = match status {
            b"" => StatusCode::OK,
            status => StatusCode::from_bytes(status.trim_ascii()).ok()?,
        };
        let (headers, body) = input::headers(rest);
        Some(Self { status, headers, body: Bytes::copy_from_slice(body) })
    }

    async fn to(&self, request: Request<RequestBody>) -> Response<Pieces> {
        let uri = request.uri();
        assert!(uri.path().starts_with("/base"), "{uri} leads out of the base URL");
        assert_eq!(uri.host(), Some("provider.test"), "{uri} leads to another host");
        for name in request.headers().keys() {
            let name = name.as_str();
            let stays = HOPS.contains(&name) || name.starts_with("x-tidegate-");
            assert!(!stays, "{name} has reached the provider");
        }
        let _ = request.into_body().collect().await;
        let pieces = self.body.chunks(PIECE).map(Bytes::copy_from_slice).collect();
        let mut response = Response::new(Pieces(pieces));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response
    }
}

/// A body in pieces.
struct Pieces(VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}
