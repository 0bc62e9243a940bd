//! Bodies that are read in one go, with a bound on their size, on the silence between pieces and on
//! all of their time: whoever sends a byte now and then is not listened to for ever.

use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use tidegate_providers::response::DecodeError;
use tokio::time::{Instant, timeout};

use crate::call::{BoxError, Broken};

/// The most bytes of an answer: 64 MiB.
const MAX_BODY: usize = 64 * 1_024 * 1_024;
/// The most bytes of an error: 1 MiB.
const MAX_ERROR: usize = 1_024 * 1_024;
/// How many silences an answer may take in all. A provider may keep its callers awake while they
/// are in its queue; two minutes of silence make ten of them, which is how long DeepSeek does so.
const MOST_SILENCES: u32 = 5;
/// How long the body of an error may take. The status and the header fields are known already, and
/// they say most of what there is to know.
const ERROR_SPAN: Duration = Duration::from_secs(5);

/// How a body is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Between any two pieces.
    silence: Duration,
    /// Until its end.
    span: Duration,
    /// In bytes.
    size: usize,
    beyond: Beyond,
}

/// What becomes of a body that goes beyond its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beyond {
    /// Its beginning will do. Whatever ends it, what came until then is good.
    Truncate,
    /// It is refused.
    Refuse,
}

impl Bounds {
    /// Of an answer in one piece, from a provider that may be silent for so long.
    pub(super) const fn of_answer(silence: Duration) -> Self {
        let span = silence.saturating_mul(MOST_SILENCES);
        Self { silence, span, size: MAX_BODY, beyond: Beyond::Refuse }
    }

    /// Of an error.
    pub(super) const fn of_error() -> Self {
        let (silence, span) = (ERROR_SPAN, ERROR_SPAN);
        Self { silence, span, size: MAX_ERROR, beyond: Beyond::Truncate }
    }
}

/// Why a body could not be read to its end.
#[derive(Debug)]
pub(super) enum Unread {
    Broken(Broken, Option<BoxError>),
    TooLong(DecodeError),
}

/// All of a body.
pub(super) async fn collect<B>(body: B, bounds: Bounds) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let Bounds { silence, span, size: limit, beyond } = bounds;
    let mut body = pin!(body);
    let mut read = BytesMut::new();
    let begin = Instant::now();
    let ended = loop {
        let left = span.saturating_sub(begin.elapsed()).min(silence);
        let frame = match timeout(left, body.frame()).await {
            Ok(None) => break Ok(()),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => break Err(Unread::Broken(Broken::Cut, Some(error.into()))),
            Err(_) => break Err(Unread::Broken(Broken::TimedOut, None)),
        };
        let Ok(data) = frame.into_data() else { continue };
        let room = limit - read.len();
        read.extend_from_slice(data.get(..room).unwrap_or(&data));
        if data.len() > room {
            break Err(Unread::TooLong(DecodeError::TooLong { limit }));
        }
    };
    match (ended, beyond) {
        (Ok(()), _) | (Err(_), Beyond::Truncate) => Ok(read.freeze()),
        (Err(unread), Beyond::Refuse) => Err(unread),
    }
}
