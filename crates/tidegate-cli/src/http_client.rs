//! One HTTP/1.1 request on one connection.
//!
//! No redirects, no proxies, no TLS: the program calls only its own listeners and the simulator.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Sends a request and reads the response to its end.
pub(crate) async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender. Its error, if any, is that of the request.
    tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
}
