//! Bodies that are read in one go, with a bound on their size and on the silence between pieces.

use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use crate::codec::DecodeError;
use crate::error::{BoxError, Broken};

/// The most bytes of an answer: 64 MiB.
pub(super) const MAX_BODY: usize = 64 * 1_024 * 1_024;
/// The most bytes of an error: 1 MiB.
pub(super) const MAX_ERROR: usize = 1_024 * 1_024;

/// What becomes of a body that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// Its beginning will do. Whatever ends it, what came until then is good.
    Truncate,
    /// It is refused.
    Refuse,
}

/// Why a body could not be read to its end.
#[derive(Debug)]
pub(super) enum Unread {
    Broken(Broken, Option<BoxError>),
    TooLong(DecodeError),
}

/// All of a body.
pub(super) async fn collect<B>(
    body: B,
    patience: Duration,
    limit: usize,
    overflow: Overflow,
) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    let mut read = BytesMut::new();
    let ended = loop {
        let frame = match timeout(patience, body.frame()).await {
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
    match (ended, overflow) {
        (Ok(()), _) | (Err(_), Overflow::Truncate) => Ok(read.freeze()),
        (Err(unread), Overflow::Refuse) => Err(unread),
    }
}
