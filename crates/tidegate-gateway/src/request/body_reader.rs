//! Reads request bodies: buffered where tokens must be counted, streamed elsewhere.
//!
//! A body that is too large is refused by its `content-length`, or as soon as it exceeds the limit.
//! Callers that are too slow are disconnected. Memory is reserved as bytes arrive, whatever the
//! caller announces. The prefix of a streamed body is read for the model and the tokens; the rest
//! is estimated by its size.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use crate::error::BoxError;
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body::{Body, Frame};
use tidegate_providers::request::{PathPurpose, size_limit};
use tidegate_providers::{Dialect, Endpoint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::request::body_timeout::{BUFFERED_IDLE, BodyTimeout};
use crate::request::buffer_budget::{BufferBudgetExceeded, BufferPermit, PeerBudget};

/// Maximum size of a buffered body if the path has no limit of its own: 64 MiB.
const MAX_BUFFERED: usize = 64 * 1_024 * 1_024;
/// Maximum size of a buffered body on an unknown path: 8 MiB.
const MAX_BUFFERED_OTHER: u64 = 8 * 1_024 * 1_024;
/// Size of the prefix of a streamed body that is read before it is sent.
pub(crate) const MAX_PEEK: usize = 64 * 1_024;
/// Granularity in which the memory of a chunked body is reserved: 64 KiB.
const MEMORY_STEP: usize = 64 * 1_024;
/// Factor by which the capacity of a growing body is allocated. Memory that is not written to is
/// not used, whereas moving a body often would use more, since freed memory is not returned at
/// once.
const GROWTH: usize = 64;

/// Why a body is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the body did not arrive in time")]
    TooSlow,
    #[error("the connection closed before the end of the body")]
    Broken(#[source] BoxError),
    #[error(transparent)]
    NoBufferSpace(#[from] BufferBudgetExceeded),
}

/// How a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyMode {
    /// Buffered completely before the call is made.
    Buffer,
    /// Streamed, after reading its prefix.
    Peek,
    /// Streamed without reading: it has no tokens to count.
    Stream,
}

impl BodyMode {
    /// Buffers JSON and bodies without a content type. On unknown paths, buffers only JSON with a
    /// small `content-length`, because uploads may go there too.
    pub(crate) fn for_request(purpose: &PathPurpose<'_>, headers: &HeaderMap) -> Self {
        if !purpose.is_readable() {
            return Self::Stream;
        }
        let content_type =
            headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let has_prefix = |prefix: &str| {
            content_type
                .get(..prefix.len())
                .is_some_and(|content_type| content_type.eq_ignore_ascii_case(prefix))
        };
        let is_streamed = match purpose.is_other() {
            true => {
                !has_prefix("application/json")
                    || content_length(headers).is_none_or(|length| length > MAX_BUFFERED_OTHER)
            }
            false => {
                has_prefix("multipart/")
                    || has_prefix("audio/")
                    || has_prefix("video/")
                    || has_prefix("application/octet-stream")
            }
        };
        if is_streamed { Self::Peek } else { Self::Buffer }
    }
}

/// Returns the size limit of a body by its path; `None` for streamed bodies without a known limit.
pub(crate) fn body_limit(
    dialect: Dialect,
    purpose: Option<&PathPurpose<'_>>,
    path: &str,
    headers: &HeaderMap,
) -> Option<usize> {
    match purpose {
        Some(purpose) => {
            let known = size_limit(purpose.dialect, &purpose.endpoint());
            let is_buffered = BodyMode::for_request(purpose, headers) == BodyMode::Buffer;
            known.or(is_buffered.then_some(MAX_BUFFERED))
        }
        None if path.contains("/files") => size_limit(dialect, &Endpoint::new("files")),
        None => None,
    }
}

/// Refuses a body whose `content-length` is too large.
pub(crate) fn check_length(headers: &HeaderMap, limit: Option<usize>) -> Result<(), BodyError> {
    match (content_length(headers), limit) {
        (Some(length), Some(limit)) if usize::try_from(length).is_ok_and(|size| size <= limit) => {
            Ok(())
        }
        (Some(_), Some(limit)) => Err(BodyError::TooLarge { limit }),
        _ => Ok(()),
    }
}

/// Returns the `content-length` of a request.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    length.and_then(|length| length.trim().parse().ok())
}

/// Buffers a complete body, with a permit for the memory it uses.
pub(crate) async fn collect<B>(
    body: B,
    limit: Option<usize>,
    budget: PeerBudget<'_>,
) -> Result<(Bytes, BufferPermit), BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let limit = limit.unwrap_or(MAX_BUFFERED);
    let expected = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
    budget.check(expected.unwrap_or(0))?;
    let now = Instant::now();
    let (mut body, mut timeout) = (pin!(body), BodyTimeout::buffered(now));
    let mut timer = pin!(sleep_until(now + BUFFERED_IDLE));
    let mut buffer = BodyBuffer { size_limit: expected.unwrap_or(limit), ..BodyBuffer::default() };
    let mut permit = BufferPermit::none();
    loop {
        let next = poll_fn(|context| poll_frame(&mut body, &mut timeout, timer.as_mut(), context));
        let Some(frame) = next.await? else { return Ok((buffer.into_bytes(), permit)) };
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > limit.saturating_sub(buffer.len()) {
            return Err(BodyError::TooLarge { limit });
        }
        budget.grow(&mut permit, buffer.memory_with(data.len()))?;
        buffer.push(data);
    }
}

/// Polls the next frame of a body. Fails if it does not arrive in time.
pub(crate) fn poll_frame<B>(
    body: &mut Pin<&mut B>,
    timeout: &mut BodyTimeout,
    timer: Pin<&mut Sleep>,
    context: &mut Context<'_>,
) -> Poll<Result<Option<Frame<Bytes>>, BodyError>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let frame = match body.as_mut().poll_frame(context) {
        Poll::Ready(None) => Ok(None),
        Poll::Ready(Some(Ok(frame))) => {
            timeout.received(frame.data_ref().map_or(0, Bytes::len));
            Ok(Some(frame))
        }
        Poll::Ready(Some(Err(error))) => Err(BodyError::Broken(error.into())),
        Poll::Pending => {
            ready!(timeout.poll_expired(timer, context));
            Err(BodyError::TooSlow)
        }
    };
    Poll::Ready(frame)
}

/// The received part of a body.
#[derive(Debug, Default)]
struct BodyBuffer {
    /// Most bodies arrive in one frame, which is not copied.
    first: Bytes,
    more: Vec<u8>,
    /// Upper bound of the size of the body.
    size_limit: usize,
}

impl BodyBuffer {
    const fn len(&self) -> usize {
        self.first.len() + self.more.len()
    }

    /// Returns the memory to reserve once `more` bytes are added.
    fn memory_with(&self, more: usize) -> usize {
        let size = self.len() + more;
        if self.len() == 0 {
            size
        } else {
            size.next_multiple_of(MEMORY_STEP).min(self.size_limit).max(size)
        }
    }

    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        let size = self.len() + data.len();
        if size > self.more.capacity() {
            let capacity = size.saturating_mul(GROWTH).min(self.size_limit).max(size);
            self.more.reserve_exact(capacity - self.more.len());
        }
        if !self.first.is_empty() {
            self.more.extend_from_slice(&self.first);
            self.first = Bytes::new();
        }
        self.more.extend_from_slice(&data);
    }

    fn into_bytes(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_complete_and_written_memory_is_counted() {
        for (expected, frame) in [(1 << 20, 16_384), (1 << 20, 1_000), (300, 7), (70_000, 65_537)] {
            for size_limit in [expected, 64 << 20] {
                let mut buffer = BodyBuffer { size_limit, ..BodyBuffer::default() };
                let text: Vec<u8> = (0..=250).cycle().take(expected).collect();
                for data in text.chunks(frame) {
                    let counted = buffer.memory_with(data.len());
                    buffer.push(Bytes::copy_from_slice(data));
                    assert!((buffer.len()..buffer.len() + MEMORY_STEP).contains(&counted));
                    assert!(counted <= size_limit && buffer.more.capacity() <= size_limit);
                }
                assert_eq!(buffer.into_bytes(), text);
            }
        }
    }
}
