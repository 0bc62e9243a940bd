//! The body of a request to a provider.
//!
//! A streamed body enforces its own limits: it fails if it exceeds its size limit or if the caller
//! is too slow. Its prefix can be read ahead and is still sent.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};

use crate::error::BoxError;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::request::body_reader::{self, BodyError};
use crate::request::body_timeout::BodyTimeout;
use crate::request::buffer_budget::{BufferPermit, PeerBudget};

/// A body received from a caller or a provider.
pub(crate) type IncomingBody = UnsyncBoxBody<Bytes, BoxError>;

/// The body of a request to a provider: buffered or streamed.
#[derive(Debug)]
pub struct RequestBody(Kind);

#[derive(Debug)]
enum Kind {
    Buffered(Option<Bytes>),
    /// In sending order, without empty parts.
    Parts(VecDeque<Bytes>),
    Streamed(Box<StreamedBody>),
}

impl RequestBody {
    pub(crate) fn buffered(bytes: Bytes) -> Self {
        Self(Kind::Buffered(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// Returns a body that sends these parts in order.
    pub(crate) fn parts(parts: Vec<Bytes>) -> Self {
        Self(Kind::Parts(parts.into_iter().filter(|part| !part.is_empty()).collect()))
    }

    pub(crate) const fn streamed(body: Box<StreamedBody>) -> Self {
        Self(Kind::Streamed(body))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Buffered(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Parts(parts) => Poll::Ready(parts.pop_front().map(|part| Ok(Frame::data(part)))),
            Kind::Streamed(body) => body.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Buffered(bytes) => bytes.is_none(),
            Kind::Parts(parts) => parts.is_empty(),
            Kind::Streamed(body) => body.prefix.is_none() && body.rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Buffered(bytes) => {
                size_hint_with_prefix(bytes.as_ref(), &SizeHint::with_exact(0))
            }
            Kind::Parts(parts) => {
                let size = parts.iter().map(Bytes::len).sum::<usize>();
                SizeHint::with_exact(u64::try_from(size).unwrap_or(u64::MAX))
            }
            Kind::Streamed(body) => {
                size_hint_with_prefix(body.prefix.as_ref(), &body.rest.size_hint())
            }
        }
    }
}

/// Returns the size hint of a body whose prefix was read ahead.
pub(crate) fn size_hint_with_prefix(prefix: Option<&Bytes>, rest: &SizeHint) -> SizeHint {
    let prefix = u64::try_from(prefix.map_or(0, Bytes::len)).unwrap_or(u64::MAX);
    let mut hint = SizeHint::new();
    hint.set_lower(rest.lower().saturating_add(prefix));
    if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(prefix)) {
        hint.set_upper(upper);
    }
    hint
}

/// The prefix of a body that was read ahead. It is still sent.
pub(crate) struct Peeked {
    pub(crate) prefix: Bytes,
    /// Whether the prefix is the whole body.
    pub(crate) is_complete: bool,
}

/// A caller's body that is forwarded as it arrives.
pub(crate) struct StreamedBody {
    /// Bytes that were read ahead, accounted for in the budget.
    prefix: Option<Bytes>,
    permit: BufferPermit,
    rest: IncomingBody,
    limit: Option<usize>,
    size: usize,
    /// Runs only while the gateway waits for the caller, not while the provider does not read.
    timeout: BodyTimeout,
    timer: Option<Pin<Box<Sleep>>>,
    upload: UploadProgress,
}

impl StreamedBody {
    pub(crate) fn new<B>(body: B, limit: Option<usize>) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let rest = body.map_err(Into::into).boxed_unsync();
        Self {
            prefix: None,
            permit: BufferPermit::none(),
            rest,
            limit,
            size: 0,
            timeout: BodyTimeout::streamed(),
            timer: None,
            upload: UploadProgress::default(),
        }
    }

    /// Returns a handle to the progress of the upload.
    pub(crate) fn upload(&self) -> UploadProgress {
        self.upload.clone()
    }

    /// Returns the budget permit of the bytes that were read ahead.
    pub(crate) fn into_permit(self) -> BufferPermit {
        self.permit
    }

    /// Reads ahead until at least `size` bytes have arrived or the body has ended.
    pub(crate) async fn peek(
        &mut self,
        size: usize,
        budget: PeerBudget<'_>,
    ) -> Result<Peeked, BodyError> {
        let expected = self.rest.size_hint().exact().and_then(|size| usize::try_from(size).ok());
        let capacity = expected.unwrap_or(size).min(size);
        let mut prefix = BytesMut::new();
        let mut is_complete = self.rest.is_end_stream();
        while prefix.len() < size && !is_complete {
            let Some(frame) = poll_fn(|context| self.poll_rest(context)).await? else {
                is_complete = true;
                break;
            };
            is_complete = self.rest.is_end_stream();
            let Ok(data) = frame.into_data() else { continue };
            budget.grow(&mut self.permit, prefix.len() + data.len())?;
            prefix.reserve(capacity.saturating_sub(prefix.len()));
            prefix.extend_from_slice(&data);
        }
        let prefix = prefix.freeze();
        self.prefix = Some(prefix.clone()).filter(|prefix| !prefix.is_empty());
        Ok(Peeked { prefix, is_complete })
    }

    /// Polls the caller's next frame.
    fn poll_rest(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, BodyError>> {
        let Self { timeout, timer, rest, .. } = self;
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(timeout.deadline())));
        body_reader::poll_frame(&mut Pin::new(rest), timeout, timer.as_mut(), context)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match self.prefix.take() {
            Some(prefix) => Frame::data(prefix),
            None => {
                self.permit = BufferPermit::none();
                match ready!(self.poll_rest(context)) {
                    Ok(Some(frame)) => frame,
                    Ok(None) => return Poll::Ready(None),
                    Err(BodyError::TooSlow) => {
                        return Poll::Ready(Some(Err(self.upload.fail(UploadError::TooSlow))));
                    }
                    Err(BodyError::Broken(error)) => return Poll::Ready(Some(Err(error))),
                    Err(error) => return Poll::Ready(Some(Err(error.into()))),
                }
            }
        };
        let size = frame.data_ref().map_or(0, Bytes::len);
        self.upload.add_sent(size);
        self.size = self.size.saturating_add(size);
        if let Some(limit) = self.limit.filter(|limit| self.size > *limit) {
            return Poll::Ready(Some(Err(self.upload.fail(UploadError::TooLarge(limit)))));
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

impl fmt::Debug for StreamedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamedBody").field("size", &self.size).finish_non_exhaustive()
    }
}

/// Progress of a streamed body. Clones refer to the same body.
#[derive(Clone, Debug, Default)]
pub(crate) struct UploadProgress(Arc<UploadState>);

#[derive(Debug, Default)]
struct UploadState {
    error: OnceLock<UploadError>,
    size: AtomicU64,
    last_sent: Mutex<Option<Instant>>,
}

/// Why a streamed body was aborted.
#[derive(Clone, Copy, Debug)]
enum UploadError {
    TooLarge(usize),
    TooSlow,
}

impl From<UploadError> for BodyError {
    fn from(error: UploadError) -> Self {
        match error {
            UploadError::TooLarge(limit) => Self::TooLarge { limit },
            UploadError::TooSlow => Self::TooSlow,
        }
    }
}

impl UploadProgress {
    /// Returns why the body was aborted, if it was.
    pub(crate) fn error(&self) -> Option<BodyError> {
        self.0.error.get().map(|error| (*error).into())
    }

    /// Returns when a part of the body was last sent.
    pub(crate) fn last_sent(&self) -> Option<Instant> {
        *self.0.last_sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bytes sent.
    pub(crate) fn size(&self) -> u64 {
        self.0.size.load(Ordering::Relaxed)
    }

    fn add_sent(&self, size: usize) {
        self.0.size.fetch_add(u64::try_from(size).unwrap_or(u64::MAX), Ordering::Relaxed);
        *self.0.last_sent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn fail(&self, error: UploadError) -> BoxError {
        BodyError::from(*self.0.error.get_or_init(|| error)).into()
    }
}
