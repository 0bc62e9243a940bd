//! Connections, and how they are closed early.
//!
//! A failing provider may close a connection in the middle of a response. Every connection has a
//! [`ConnectionControl`], with which a response can close it after everything was sent, or reset it
//! immediately. This module only moves bytes.

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

/// Controls the end of a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionControl {
    state: AtomicU8,
    ended: Notify,
}

impl ConnectionControl {
    /// Closes the connection after everything written was sent.
    pub(crate) fn cut(&self) {
        let _ = self.state.compare_exchange(OPEN, CUT, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Resets the connection immediately.
    pub(crate) fn reset(&self) {
        self.state.store(RESET, Ordering::SeqCst);
        self.ended.notify_one();
    }

    /// Waits until the connection should end.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::SeqCst)
    }
}

/// A byte stream that can be served.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// Makes the next close a reset.
    fn abort(&self);
}

impl Transport for TcpStream {
    fn abort(&self) {
        // If this fails, the socket is closed already.
        let _ = self.set_zero_linger();
    }
}

impl Transport for DuplexStream {
    /// Nothing to do: the client half checks the control itself.
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

    /// hyper flushes after everything is written, so this is where a cut can happen.
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

/// The client side of an in-process connection, from
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
