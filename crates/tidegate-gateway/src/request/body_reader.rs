//! Bodies of requests: collected where they must be counted, streamed where they need not be.
//!
//! What is too large is refused before it is read, if it says how large it is, and else as soon as
//! it is. Whoever falls silent in the middle is not waited for. Of a form the beginning is looked at for the name of a model.

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

use crate::request::body::Inbound;
use crate::request::buffer_budget::{Full, Room, Share};

/// The most bytes of a body that is collected, where its path has no limit: 64 MiB.
const MAX_COLLECTED: usize = 64 * 1_024 * 1_024;
/// How much of a form is looked at.
const MAX_LOOK: usize = 64 * 1_024;
/// How long a caller may be silent in the middle of its body.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a body is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Untaken {
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the body did not come in time")]
    TooSlow,
    #[error("the body broke off")]
    Broken(#[source] BoxError),
    #[error(transparent)]
    Full(#[from] Full),
}

/// How a body is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// All of it first.
    Collect,
    /// As it comes, with a look at its beginning.
    Look,
    /// As it comes.
    Stream,
}

impl Taking {
    /// JSON is collected, and so is what does not say what it is.
    pub(crate) fn of(purpose: &Purpose<'_>, fields: &HeaderMap) -> Self {
        if !purpose.is_readable() {
            return Self::Stream;
        }
        let kind = fields.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let begins = |start: &str| {
            kind.get(..start.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(start))
        };
        if begins("multipart/") {
            Self::Look
        } else if begins("audio/") || begins("video/") || begins("application/octet-stream") {
            Self::Stream
        } else {
            Self::Collect
        }
    }
}

/// The most bytes of a body by its path; `None` where nothing is known of one that streams.
pub(crate) fn limit(
    dialect: Dialect,
    purpose: Option<&Purpose<'_>>,
    path: &str,
    fields: &HeaderMap,
) -> Option<usize> {
    match purpose {
        Some(purpose) => {
            let known = size_limit(purpose.dialect, &purpose.endpoint());
            let is_collected = Taking::of(purpose, fields) == Taking::Collect;
            known.or(is_collected.then_some(MAX_COLLECTED))
        }
        None if path.contains("/files") => size_limit(dialect, &Endpoint::new("files")),
        None => None,
    }
}

/// Refuses a body that says that it is too large.
pub(crate) fn check_length(fields: &HeaderMap, limit: Option<usize>) -> Result<(), Untaken> {
    let length = fields.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = length.and_then(|length| length.trim().parse::<u64>().ok());
    match (length, limit) {
        (Some(length), Some(limit)) if usize::try_from(length).is_ok_and(|size| size <= limit) => {
            Ok(())
        }
        (Some(_), Some(limit)) => Err(Untaken::TooLarge { limit }),
        _ => Ok(()),
    }
}

/// All of a body, and the room that it takes.
pub(crate) async fn collect<B>(
    body: B,
    limit: Option<usize>,
    room: &Room,
) -> Result<(Bytes, Share), Untaken>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let limit = limit.unwrap_or(MAX_COLLECTED);
    let mut body = pin!(body);
    // Most bodies come in one piece, which need not be copied.
    let (mut first, mut more) = (Bytes::new(), BytesMut::new());
    let mut share = Share::default();
    while let Some(data) = next(&mut body).await? {
        let so_far = first.len() + more.len();
        if data.len() > limit.saturating_sub(so_far) {
            return Err(Untaken::TooLarge { limit });
        }
        room.grow(&mut share, so_far + data.len())?;
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
    Ok((if more.is_empty() { first } else { more.freeze() }, share))
}

/// The beginning of a body, and a body that begins with it.
pub(crate) async fn look(mut body: Inbound) -> Result<(Bytes, Inbound), Untaken> {
    let mut begin = BytesMut::new();
    while begin.len() < MAX_LOOK {
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
async fn next<B>(body: &mut Pin<&mut B>) -> Result<Option<Bytes>, Untaken>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    loop {
        match timeout(PATIENCE, body.frame()).await {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Ok(Some(Err(error))) => return Err(Untaken::Broken(error.into())),
            Err(_) => return Err(Untaken::TooSlow),
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
    rest: Inbound,
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
pub(crate) struct Upload(Arc<Progress>);

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
    const fn untaken(self) -> Untaken {
        match self {
            Self::TooLarge(limit) => Untaken::TooLarge { limit },
            Self::TooSlow => Untaken::TooSlow,
        }
    }
}

impl Upload {
    /// Why it was not taken, if it was not.
    pub(crate) fn failed(&self) -> Option<Untaken> {
        self.0.cut.get().map(|cut| cut.untaken())
    }

    /// When something of it was last sent on.
    pub(crate) fn last_sent(&self) -> Option<Instant> {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passes(&self) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn cut(&self, cut: Cut) -> BoxError {
        self.0.cut.get_or_init(|| cut).untaken().into()
    }
}

/// A body that breaks off when it is larger than it may be, or its caller falls silent.
pub(crate) fn bounded(body: Inbound, limit: Option<usize>) -> (Inbound, Upload) {
    let upload = Upload::default();
    let bounded = Bounded { body, limit, size: 0, patience: None, upload: upload.clone() };
    (bounded.boxed_unsync(), upload)
}

struct Bounded {
    body: Inbound,
    limit: Option<usize>,
    size: usize,
    /// Runs while the caller is waited for, and not while the provider does not listen.
    patience: Option<Pin<Box<Sleep>>>,
    upload: Upload,
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
            let patience = this.patience.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
            ready!(patience.as_mut().poll(context));
            return Poll::Ready(Some(Err(this.upload.cut(Cut::TooSlow))));
        };
        this.patience = None;
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
