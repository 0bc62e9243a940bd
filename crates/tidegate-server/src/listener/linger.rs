//! Lingering close: after the last response, discards what the caller is still sending.
//!
//! A caller that sends a large body reads the response only afterwards, or when sending fails. If
//! the socket is closed while bytes are unread, the kernel resets the connection, and the reset
//! discards a response that has arrived but was not read. So the sending side is closed first, and
//! input is discarded until the caller closes its side, within the bounds of [`Linger`]. Nothing
//! that is discarded is parsed, and no memory is held for it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Maximum number of bytes that are discarded: twice the largest body that the gateway buffers.
const MAX_BYTES: usize = 128 * 1024 * 1024;

/// Maximum duration. Shorter than the grace period of a shutdown.
const MAX_DURATION: Duration = Duration::from_secs(15);

/// Maximum time without any byte from the caller.
const MAX_SILENCE: Duration = Duration::from_secs(3);

/// Size of the buffer on the stack.
const BUFFER: usize = 16 * 1024;

/// The bounds that remain for one connection.
#[derive(Debug)]
pub(super) struct Linger {
    bytes_left: usize,
    end: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Linger {
    /// Starts now.
    pub(super) fn start() -> Self {
        let now = Instant::now();
        let timer = Box::pin(tokio::time::sleep_until(now + MAX_SILENCE));
        Self { bytes_left: MAX_BYTES, end: now + MAX_DURATION, timer }
    }

    /// Discards input. Ready when the caller has closed its side, or at one of the bounds.
    pub(super) fn poll(
        &mut self,
        mut stream: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut buffer = [0; BUFFER];
        let mut has_read = false;
        loop {
            let mut input = ReadBuf::new(&mut buffer);
            match stream.as_mut().poll_read(cx, &mut input) {
                Poll::Pending => break,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {}
            }
            let read = input.filled().len();
            if read == 0 || read >= self.bytes_left {
                return Poll::Ready(());
            }
            self.bytes_left -= read;
            has_read = true;
        }
        if has_read {
            self.timer.as_mut().reset(self.end.min(Instant::now() + MAX_SILENCE));
        }
        self.timer.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    #[test]
    fn the_bounds_are_documented() {
        let page = include_str!("../../../../docs/install.md");
        let text = format!(
            "at most {} MiB, for at most {} s, and stops after {} s without a byte",
            MAX_BYTES >> 20,
            MAX_DURATION.as_secs(),
            MAX_SILENCE.as_secs(),
        );
        assert!(page.contains(&text), "{text}");
    }

    /// Lingers in virtual time and returns how long it took and how many bytes were left.
    async fn linger(stream: DuplexStream) -> (Duration, usize) {
        let (start, mut linger, mut stream) = (Instant::now(), Linger::start(), pin!(stream));
        poll_fn(|cx| linger.poll(stream.as_mut(), cx)).await;
        (start.elapsed(), linger.bytes_left)
    }

    #[tokio::test(start_paused = true)]
    async fn ends_when_the_caller_closes_or_is_silent() {
        let (caller, stream) = duplex(64);
        drop(caller);
        assert_eq!(linger(stream).await, (Duration::ZERO, MAX_BYTES));
        let (caller, stream) = duplex(64);
        assert_eq!(linger(stream).await, (MAX_SILENCE, MAX_BYTES));
        drop(caller);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_trickles_cannot_extend_it() {
        let (mut caller, stream) = duplex(64);
        let trickle = async {
            while caller.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        };
        let ((duration, left), ()) = tokio::join!(linger(stream), trickle);
        assert_eq!((duration, left), (MAX_DURATION, MAX_BYTES - 8));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_floods_is_cut_off() {
        let (mut caller, stream) = duplex(1 << 20);
        let flood = async {
            let piece = vec![0; 1 << 20];
            let mut written = 0;
            while caller.write_all(&piece).await.is_ok() {
                written += piece.len();
            }
            written
        };
        let ((duration, _), written) = tokio::join!(linger(stream), flood);
        assert!(written <= MAX_BYTES + (1 << 20), "{written}");
        assert!(written >= MAX_BYTES && duration == Duration::ZERO, "{written} {duration:?}");
    }
}
