//! Connections, and how they end before their time.
//!
//! A provider that fails does not always finish its sentence. Every connection has a [`ConnectionControl`], by
//! which an answer can have it closed once everything said so far is sent, or reset at once. This
//! module moves bytes and knows nothing of what they say.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

const OPEN: u8 = 0;
const CUT: u8 = 1;
const RESET: u8 = 2;

/// How one connection stands.
#[derive(Debug, Default)]
pub(crate) struct ConnectionControl {
    state: AtomicU8,
    ended: Notify,
}

impl ConnectionControl {
    /// Closes the connection once all that was written is sent.
    pub(crate) fn cut(&self) {
        let _ = self.state.compare_exchange(OPEN, CUT, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Resets the connection now.
    pub(crate) fn reset(&self) {
        self.state.store(RESET, Ordering::SeqCst);
        self.ended.notify_one();
    }

    /// Waits until the connection is to end.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::SeqCst)
    }
}

/// What a simulator can serve.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// Makes the next close a reset.
    fn abort(&self);
}

impl Transport for TcpStream {
    fn abort(&self) {
        // If the socket is gone already, there is nothing left to reset.
        let _ = self.set_zero_linger();
    }
}

impl Transport for DuplexStream {
    /// The other half looks at the link by itself.
    fn abort(&self) {}
}

/// The simulator's side of a connection.
pub(crate) struct ServerStream<T: Transport> {
    io: T,
    control: Arc<ConnectionControl>,
}

impl<T: Transport> ServerStream<T> {
    pub(crate) fn new(io: T, control: Arc<ConnectionControl>) -> Self {
        Self { io, control }
    }
}

impl<T: Transport> Drop for ServerStream<T> {
    fn drop(&mut self) {
        if self.control.state() == RESET {
            self.io.abort();
        }
    }
}

impl<T: Transport> AsyncRead for ServerStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: Transport> AsyncWrite for ServerStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    /// The protocol flushes when it has written all it has, so this is where a cut may happen.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        if flushed.is_ready() && self.control.state() == CUT {
            self.control.ended.notify_one();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// A client's side of a connection that never leaves the process, from
/// [`Simulator::connect`](crate::Simulator::connect).
#[derive(Debug)]
pub struct Connection {
    io: DuplexStream,
    control: Arc<ConnectionControl>,
}

impl Connection {
    pub(crate) fn new(io: DuplexStream, control: Arc<ConnectionControl>) -> Self {
        Self { io, control }
    }

    fn check(&self) -> io::Result<()> {
        if self.control.state() == RESET {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        self.check()?;
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
