//! The body of a provider's response, with the configured key masked.
//!
//! Bytes are forwarded as they arrive. Only bytes at the end of a chunk that may be the start of
//! the key are held until the next chunk. Nothing is decoded here.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::error::BoxError;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use crate::request::body::{IncomingBody, size_hint_with_prefix};
use crate::upstream::redaction::KeyRedactor;

/// The body of a response being received.
#[derive(Default)]
pub(crate) struct ProviderBody {
    inner: IncomingBody,
    /// `None` if there is no key to mask.
    redactor: Option<Arc<KeyRedactor>>,
    /// Bytes that may be the start of the key.
    held: Bytes,
    /// Trailers to send after the held bytes.
    trailers: Option<HeaderMap>,
}

impl ProviderBody {
    pub(crate) fn new(inner: IncomingBody, redactor: Option<&Arc<KeyRedactor>>) -> Self {
        let redactor = redactor.filter(|redactor| redactor.scans_bodies()).cloned();
        Self { inner, redactor, held: Bytes::new(), trailers: None }
    }
}

/// Returns the bytes of a chunk that can be forwarded. Holds bytes that may be the start of the
/// key.
fn redact(redactor: &KeyRedactor, held: &mut Bytes, chunk: Bytes, is_last: bool) -> Bytes {
    let chunk = match std::mem::take(held) {
        held if held.is_empty() => chunk,
        held => [held, chunk].concat().into(),
    };
    let mut chunk = redactor.redact_chunk(chunk);
    let partial = if is_last { 0 } else { redactor.partial_key_len(&chunk) };
    if partial > 0 {
        *held = chunk.split_off(chunk.len() - partial);
    }
    chunk
}

impl Body for ProviderBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some(trailers) = this.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        loop {
            let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
            let Some(redactor) = &this.redactor else { return Poll::Ready(frame) };
            let frame = match frame {
                Some(Ok(frame)) => frame,
                None if !this.held.is_empty() => {
                    let held = std::mem::take(&mut this.held);
                    return Poll::Ready(Some(Ok(Frame::data(held))));
                }
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(chunk) => {
                    let is_last = this.inner.is_end_stream();
                    let output = redact(redactor, &mut this.held, chunk, is_last);
                    if !output.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(output))));
                    }
                }
                Err(frame) => {
                    let mut trailers = frame.into_trailers().unwrap_or_default();
                    redactor.redact_headers(&mut trailers);
                    if this.held.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                    }
                    this.trailers = Some(trailers);
                    let held = std::mem::take(&mut this.held);
                    return Poll::Ready(Some(Ok(Frame::data(held))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.trailers.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.held.is_empty() {
            true => self.inner.size_hint(),
            false => size_hint_with_prefix(Some(&self.held), &self.inner.size_hint()),
        }
    }
}

impl fmt::Debug for ProviderBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderBody").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::BodyExt as _;

    use super::*;

    const KEY: &str = "sk-tidal-0123456789";

    /// A body that does not know its end in advance.
    struct Chunks(VecDeque<Bytes>);

    impl Body for Chunks {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            Poll::Ready(self.0.pop_front().map(|chunk| Ok(Frame::data(chunk))))
        }
    }

    async fn output(chunks: &[&str]) -> String {
        let chunks = chunks.iter().map(|chunk| Bytes::from((*chunk).to_owned())).collect();
        let redactor = KeyRedactor::new(KEY).map(Arc::new);
        let inner = Chunks(chunks).boxed_unsync();
        let body = ProviderBody::new(inner, redactor.as_ref());
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn key_is_masked_across_chunk_boundaries() {
        let hidden = format!("a {} b", "*".repeat(KEY.len()));
        for first in 0..=KEY.len() {
            for second in first..=KEY.len() {
                let start = format!("a {}", &KEY[..first]);
                let end = format!("{} b", &KEY[second..]);
                assert_eq!(output(&[&start, &KEY[first..second], &end]).await, hidden);
            }
        }
    }

    #[tokio::test]
    async fn partial_keys_are_not_masked() {
        assert_eq!(output(&["a sk-ti", "dal-012", "3 s"]).await, "a sk-tidal-0123 s");
        assert_eq!(output(&["s", "s", "sk-tidal-"]).await, "sssk-tidal-");
    }
}
