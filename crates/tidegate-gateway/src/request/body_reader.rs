//! Reads request bodies: buffered where tokens must be counted, streamed elsewhere.
//!
//! A body that is too large is refused by its `content-length`, else as soon as the limit is passed.
//! A caller that sends nothing for a minute is disconnected. The beginning of a form is searched for
//! the name of a model.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tidegate_llm::BoxError;
use tidegate_providers::request::{Purpose, size_limit};
use tidegate_providers::{Dialect, Endpoint};
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::request::body::IncomingBody;
use crate::request::buffer_budget::{BufferBudget, BufferBudgetExceeded, BufferPermit};

/// The largest buffered body where the path has no limit of its own: 64 MiB.
const MAX_COLLECTED: usize = 64 * 1_024 * 1_024;
/// How much of a form is searched.
const MAX_PEEK: usize = 64 * 1_024;
/// How long a caller may send nothing in the middle of its body.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a body is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the body did not come in time")]
    TooSlow,
    #[error("the body broke off")]
    Broken(#[source] BoxError),
    #[error(transparent)]
    NoBufferSpace(#[from] BufferBudgetExceeded),
}

/// How a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyMode {
    /// Buffered whole before the call is made.
    Collect,
    /// Streamed, after a search of its beginning.
    Peek,
    /// Streamed.
    Stream,
}

impl BodyMode {
    /// JSON is buffered, and so is a body without a content type.
    pub(crate) fn of(purpose: &Purpose<'_>, headers: &HeaderMap) -> Self {
        if !purpose.is_readable() {
            return Self::Stream;
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let begins = |start: &str| {
            kind.get(..start.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(start))
        };
        if begins("multipart/") {
            Self::Peek
        } else if begins("audio/") || begins("video/") || begins("application/octet-stream") {
            Self::Stream
        } else {
            Self::Collect
        }
    }
}

/// The size limit of a body by its path; `None` for streamed bodies without a known limit.
pub(crate) fn limit(
    dialect: Dialect,
    purpose: Option<&Purpose<'_>>,
    path: &str,
    headers: &HeaderMap,
) -> Option<usize> {
    match purpose {
        Some(purpose) => {
            let known = size_limit(purpose.dialect, &purpose.endpoint());
            let is_collected = BodyMode::of(purpose, headers) == BodyMode::Collect;
            known.or(is_collected.then_some(MAX_COLLECTED))
        }
        None if path.contains("/files") => size_limit(dialect, &Endpoint::new("files")),
        None => None,
    }
}

/// Refuses a body whose `content-length` is too large.
pub(crate) fn check_length(headers: &HeaderMap, limit: Option<usize>) -> Result<(), BodyError> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = length.and_then(|length| length.trim().parse::<u64>().ok());
    match (length, limit) {
        (Some(length), Some(limit)) if usize::try_from(length).is_ok_and(|size| size <= limit) => {
            Ok(())
        }
        (Some(_), Some(limit)) => Err(BodyError::TooLarge { limit }),
        _ => Ok(()),
    }
}

/// Buffers a whole body, with the part of the budget that it uses.
pub(crate) async fn collect<B>(
    body: B,
    limit: Option<usize>,
    budget: &BufferBudget,
) -> Result<(Bytes, BufferPermit), BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let limit = limit.unwrap_or(MAX_COLLECTED);
    let mut body = pin!(body);
    // Most bodies come in one frame, which is not copied.
    let (mut first, mut more) = (Bytes::new(), BytesMut::new());
    let mut permit = BufferPermit::default();
    while let Some(data) = next(&mut body).await? {
        let so_far = first.len() + more.len();
        if data.len() > limit.saturating_sub(so_far) {
            return Err(BodyError::TooLarge { limit });
        }
        budget.grow(&mut permit, so_far + data.len())?;
        if so_far == 0 {
            first = data;
        } else {
            if more.is_empty() {
                more.extend_from_slice(&first);
                first = Bytes::new();
            }
            more.extend_from_slice(&data);
        }
    }
    Ok((if more.is_empty() { first } else { more.freeze() }, permit))
}

/// The beginning of a body, and a body that begins with it.
pub(crate) async fn peek(mut body: IncomingBody) -> Result<(Bytes, IncomingBody), BodyError> {
    let mut begin = BytesMut::new();
    while begin.len() < MAX_PEEK {
        match next(&mut Pin::new(&mut body)).await? {
            Some(data) => begin.extend_from_slice(&data),
            None => break,
        }
    }
    let begin = begin.freeze();
    let whole = Begun { begin: Some(begin.clone()), rest: body }.boxed_unsync();
    Ok((begin, whole))
}

/// The next bytes of a body, if there are any.
async fn next<B>(body: &mut Pin<&mut B>) -> Result<Option<Bytes>, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    loop {
        match timeout(READ_TIMEOUT, body.frame()).await {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Ok(Some(Err(error))) => return Err(BodyError::Broken(error.into())),
            Err(_) => return Err(BodyError::TooSlow),
        }
    }
}

/// The value of the field `model` in the beginning of a form.
pub(crate) fn model_in_form(begin: &[u8]) -> Option<&str> {
    const NAME: &[u8] = b"name=\"model\"";
    let at = begin.windows(NAME.len()).position(|window| window == NAME)?;
    let rest = begin.get(at + NAME.len()..)?;
    let value = rest.windows(4).position(|window| window == b"\r\n\r\n")?;
    let value = rest.get(value + 4..)?;
    let end = value.windows(2).position(|window| window == b"\r\n")?;
    let model = std::str::from_utf8(value.get(..end)?).ok()?.trim();
    (!model.is_empty() && model.len() <= 256).then_some(model)
}

/// A body of which the beginning was read.
struct Begun {
    begin: Option<Bytes>,
    rest: IncomingBody,
}

impl Body for Begun {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.begin.take().filter(|begin| !begin.is_empty()) {
            Some(begin) => Poll::Ready(Some(Ok(Frame::data(begin)))),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let begin = u64::try_from(self.begin.as_ref().map_or(0, Bytes::len)).unwrap_or(u64::MAX);
        match self.rest.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(rest.saturating_add(begin)),
            None => SizeHint::new(),
        }
    }
}

/// What becomes of a body that streams. Clones tell of the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct UploadStatus(Arc<Progress>);

#[derive(Debug, Default)]
struct Progress {
    cut: OnceLock<Cut>,
    last: Mutex<Option<Instant>>,
}

/// Why a body that streams was cut off.
#[derive(Clone, Copy, Debug)]
enum Cut {
    TooLarge(usize),
    TooSlow,
}

impl Cut {
    const fn body_error(self) -> BodyError {
        match self {
            Self::TooLarge(limit) => BodyError::TooLarge { limit },
            Self::TooSlow => BodyError::TooSlow,
        }
    }
}

impl UploadStatus {
    /// Why it was not taken, if it was not.
    pub(crate) fn failed(&self) -> Option<BodyError> {
        self.0.cut.get().map(|cut| cut.body_error())
    }

    /// When something of it was last sent on.
    pub(crate) fn last_sent(&self) -> Option<Instant> {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passes(&self) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn cut(&self, cut: Cut) -> BoxError {
        self.0.cut.get_or_init(|| cut).body_error().into()
    }
}

/// A body that breaks off when it is larger than it may be, or its caller falls silent.
pub(crate) fn bounded(body: IncomingBody, limit: Option<usize>) -> (IncomingBody, UploadStatus) {
    let upload = UploadStatus::default();
    let bounded = Bounded { body, limit, size: 0, read_timeout: None, upload: upload.clone() };
    (bounded.boxed_unsync(), upload)
}

struct Bounded {
    body: IncomingBody,
    limit: Option<usize>,
    size: usize,
    /// Runs while the caller is waited for, and not while the provider does not listen.
    read_timeout: Option<Pin<Box<Sleep>>>,
    upload: UploadStatus,
}

impl Body for Bounded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Poll::Ready(polled) = Pin::new(&mut this.body).poll_frame(context) else {
            let read_timeout =
                this.read_timeout.get_or_insert_with(|| Box::pin(sleep(READ_TIMEOUT)));
            ready!(read_timeout.as_mut().poll(context));
            return Poll::Ready(Some(Err(this.upload.cut(Cut::TooSlow))));
        };
        this.read_timeout = None;
        if let Some(Ok(frame)) = &polled {
            this.upload.passes();
            this.size = this.size.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            if let Some(limit) = this.limit.filter(|limit| this.size > *limit) {
                return Poll::Ready(Some(Err(this.upload.cut(Cut::TooLarge(limit)))));
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_names_its_model() {
        let form = b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nRIFF\r\n--x\r\n\
            Content-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--x--";
        assert_eq!(model_in_form(form), Some("whisper-1"));
        assert_eq!(model_in_form(&form[..100]), None);
        assert_eq!(model_in_form(b""), None);
    }
}
