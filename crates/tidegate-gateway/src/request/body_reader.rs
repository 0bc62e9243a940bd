//! Reads request bodies: buffered where tokens must be counted, streamed elsewhere.
//!
//! A body that is too large is refused by its `content-length`, else as soon as the limit is passed.
//! A caller that sends nothing for a minute is disconnected. The beginning of a streamed body is read
//! for the name of a model and for tokens; the rest is estimated by its size.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Body;
use http_body_util::BodyExt as _;
use tidegate_llm::BoxError;
use tidegate_providers::request::{Purpose, size_limit};
use tidegate_providers::{Dialect, Endpoint};
use tokio::time::timeout;

use crate::request::buffer_budget::{BufferBudget, BufferBudgetExceeded, BufferPermit};

/// The largest buffered body where the path has no limit of its own: 64 MiB.
const MAX_COLLECTED: usize = 64 * 1_024 * 1_024;
/// The largest buffered body of a path that is not known: 8 MiB.
const MAX_COLLECTED_OTHER: u64 = 8 * 1_024 * 1_024;
/// How much of a streamed body is read before it is sent.
pub(crate) const MAX_PEEK: usize = 64 * 1_024;
/// How long a caller may send nothing in the middle of its body.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(60);

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
    /// Streamed, after a look at its beginning.
    Peek,
    /// Streamed, since it has no tokens to count.
    Stream,
}

impl BodyMode {
    /// JSON is buffered, and so is a body without a content type. On paths that are not known only
    /// JSON is, of a size that is known and not large: uploads go there too.
    pub(crate) fn of(purpose: &Purpose<'_>, headers: &HeaderMap) -> Self {
        if !purpose.is_readable() {
            return Self::Stream;
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let begins = |start: &str| {
            kind.get(..start.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(start))
        };
        let is_streamed = match purpose.is_other() {
            true => {
                !begins("application/json")
                    || content_length(headers).is_none_or(|length| length > MAX_COLLECTED_OTHER)
            }
            false => {
                begins("multipart/")
                    || begins("audio/")
                    || begins("video/")
                    || begins("application/octet-stream")
            }
        };
        if is_streamed { Self::Peek } else { Self::Collect }
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
    match (content_length(headers), limit) {
        (Some(length), Some(limit)) if usize::try_from(length).is_ok_and(|size| size <= limit) => {
            Ok(())
        }
        (Some(_), Some(limit)) => Err(BodyError::TooLarge { limit }),
        _ => Ok(()),
    }
}

/// The size that the headers announce.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    length.and_then(|length| length.trim().parse().ok())
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
    let mut permit = BufferPermit::none();
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

/// The next bytes of a body, if there are any.
pub(crate) async fn next<B>(body: &mut Pin<&mut B>) -> Result<Option<Bytes>, BodyError>
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
