//! A TCP stream that reports its progress to the timeouts of the connection, and closes without
//! losing its last response.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::linger::Linger;
use super::timeouts::Timeouts;

/// A TCP stream whose reads and writes are reported to [`Timeouts`].
#[derive(Debug)]
pub(crate) struct TimedStream {
    stream: TcpStream,
    timeouts: Arc<Timeouts>,
    has_read: bool,
    /// Whether the caller has closed its side.
    is_ended: bool,
    /// Set once the sending side is closed, if the caller may still be sending.
    linger: Option<Linger>,
}

impl TimedStream {
    pub(crate) fn new(stream: TcpStream, timeouts: Arc<Timeouts>) -> Self {
        Self { stream, timeouts, has_read: false, is_ended: false, linger: None }
    }

    fn report_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_pending() {
            self.timeouts.write_blocked();
        } else {
            self.timeouts.write_progressed();
        }
        written
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.has_read = true;
            self.timeouts.bytes_read();
        } else if read.is_ready() && buffer.remaining() > 0 {
            self.is_ended = true;
        }
        read
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.report_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.report_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Closes the sending side. If the caller may still be sending, then discards what it sends,
    /// within bounds, so that it can read the response.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let linger = match &mut this.linger {
            Some(linger) => linger,
            empty => {
                ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
                if this.is_ended || !this.has_read || !this.timeouts.is_request_unread() {
                    return Poll::Ready(Ok(()));
                }
                empty.insert(Linger::start())
            }
        };
        linger.poll(Pin::new(&mut this.stream), cx).map(Ok)
    }
}
