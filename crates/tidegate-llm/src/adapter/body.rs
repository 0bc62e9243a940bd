//! Reads complete bodies, with bounds on their size, on the gaps between pieces and on the total
//! time, so that a server that sends a byte now and then cannot hold a call forever.

use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use tidegate_providers::response::DecodeError;
use tokio::time::{Instant, timeout};

use crate::call::{BoxError, ConnectionFailure};

/// Maximum size of a response: 64 MiB.
const MAX_BODY: usize = 64 * 1_024 * 1_024;
/// Maximum size of an error body: 1 MiB.
const MAX_ERROR: usize = 1_024 * 1_024;
/// Total time of a response as a multiple of the idle timeout. Providers may send keep-alives
/// while a call is queued; with the default of two minutes this allows ten, which is DeepSeek's
/// maximum.
const MAX_IDLE_TIMEOUTS: u32 = 5;
/// Total time of an error body. Status and headers are known already and carry most of the
/// information.
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);

/// Bounds for reading a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum time between two pieces.
    idle: Duration,
    /// Maximum time until the end.
    total: Duration,
    /// Maximum size in bytes.
    size: usize,
    on_excess: OnExcess,
}

/// What to do with a body that exceeds its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnExcess {
    /// Return what was read, also if the body fails.
    Truncate,
    /// Fail.
    Reject,
}

impl Bounds {
    /// Returns the bounds of a response in one piece, given the idle timeout.
    pub(super) const fn for_response(idle: Duration) -> Self {
        let total = idle.saturating_mul(MAX_IDLE_TIMEOUTS);
        Self { idle, total, size: MAX_BODY, on_excess: OnExcess::Reject }
    }

    /// Returns the bounds of an error body.
    pub(super) const fn for_error() -> Self {
        let (idle, total) = (ERROR_TIMEOUT, ERROR_TIMEOUT);
        Self { idle, total, size: MAX_ERROR, on_excess: OnExcess::Truncate }
    }
}

/// Why a body could not be read to its end.
#[derive(Debug)]
pub(super) enum BodyError {
    Connection(ConnectionFailure, Option<BoxError>),
    TooLong(DecodeError),
}

/// Reads a body to its end.
pub(super) async fn collect<B>(body: B, bounds: Bounds) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let Bounds { idle, total, size: limit, on_excess } = bounds;
    let mut body = pin!(body);
    let mut read = BytesMut::new();
    let started = Instant::now();
    let ended = loop {
        let remaining = total.saturating_sub(started.elapsed()).min(idle);
        let frame = match timeout(remaining, body.frame()).await {
            Ok(None) => break Ok(()),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                break Err(BodyError::Connection(ConnectionFailure::Closed, Some(error.into())));
            }
            Err(_) => break Err(BodyError::Connection(ConnectionFailure::TimedOut, None)),
        };
        let Ok(data) = frame.into_data() else { continue };
        let free = limit - read.len();
        read.extend_from_slice(data.get(..free).unwrap_or(&data));
        if data.len() > free {
            break Err(BodyError::TooLong(DecodeError::TooLarge { limit }));
        }
    };
    match (ended, on_excess) {
        (Ok(()), _) | (Err(_), OnExcess::Truncate) => Ok(read.freeze()),
        (Err(error), OnExcess::Reject) => Err(error),
    }
}
