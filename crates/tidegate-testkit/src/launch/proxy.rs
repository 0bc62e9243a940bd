//! A TCP proxy that simulates a slow, stalled or broken network on one machine.
//!
//! Bytes arrive late or not at all, but never out of order. A stalled connection resumes where it
//! stopped, as over a real network; a cut connection is closed for both ends.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Maximum number of bytes per read.
const CHUNK: usize = 16 << 10;

/// A TCP proxy on a loopback port. It runs on its own thread until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    conditions: watch::Sender<Conditions>,
    accepted: Arc<AtomicU64>,
    cuts: Option<mpsc::UnboundedSender<Cut>>,
    thread: Option<JoinHandle<()>>,
}

/// How the proxy treats bytes and new connections.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    to_server: Duration,
    to_client: Duration,
    stalled: bool,
    refusing: bool,
}

/// The command to close all connections; a message on it confirms that they are closed.
type Cut = blocking::Sender<()>;

/// The direction in which bytes are forwarded.
#[derive(Clone, Copy, Debug)]
enum Direction {
    ToServer,
    ToClient,
}

impl Proxy {
    /// Starts a proxy in front of `upstream` that forwards everything without delay.
    ///
    /// # Panics
    /// If no port or no thread is available.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free loopback port");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (conditions, receiver) = watch::channel(Conditions::default());
        let (cuts, received) = mpsc::unbounded_channel();
        let accepted = Arc::new(AtomicU64::new(0));
        let server = ProxyServer {
            listener,
            upstream,
            conditions: receiver,
            accepted: Arc::clone(&accepted),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a current-thread runtime");
        let thread = std::thread::spawn(move || runtime.block_on(server.serve(received)));
        Self { address, conditions, accepted, cuts: Some(cuts), thread: Some(thread) }
    }

    /// The address to which clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of connections accepted since the start, without refused ones.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }

    /// Delays bytes that arrive from now on, in each direction: a round trip takes twice `delay`.
    pub fn set_delay(&self, delay: Duration) {
        self.set_delays(delay, delay);
    }

    /// Delays bytes that arrive from now on, with a delay per direction.
    pub fn set_delays(&self, to_server: Duration, to_client: Duration) {
        self.conditions.send_modify(|conditions| {
            (conditions.to_server, conditions.to_client) = (to_server, to_client);
        });
    }

    /// Forwards nothing in either direction until [`Proxy::resume`]. Connections are still
    /// accepted, and received bytes are kept.
    pub fn stall(&self) {
        self.conditions.send_modify(|conditions| conditions.stalled = true);
    }

    /// Forwards the kept bytes, and everything after them.
    pub fn resume(&self) {
        self.conditions.send_modify(|conditions| conditions.stalled = false);
    }

    /// Closes new connections immediately until [`Proxy::accept`]. Existing ones stay open.
    pub fn refuse(&self) {
        self.conditions.send_modify(|conditions| conditions.refusing = true);
    }

    /// Accepts new connections again.
    pub fn accept(&self) {
        self.conditions.send_modify(|conditions| conditions.refusing = false);
    }

    /// Closes all connections. On return they are closed on both sides; bytes in transit are lost.
    pub fn cut(&self) {
        let (done, receiver) = blocking::channel();
        if let Some(cuts) = &self.cuts {
            let _ = cuts.send(done);
        }
        // An error means that the proxy's thread has ended, and its connections with it.
        let _ = receiver.recv();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.cuts.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The accept loop on the thread of the proxy.
#[derive(Debug)]
struct ProxyServer {
    listener: StdListener,
    upstream: SocketAddr,
    conditions: watch::Receiver<Conditions>,
    accepted: Arc<AtomicU64>,
}

impl ProxyServer {
    /// Serves until the `Proxy` is dropped.
    async fn serve(self, mut cuts: mpsc::UnboundedReceiver<Cut>) {
        let listener = TcpListener::from_std(self.listener).expect("a socket for the runtime");
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((client, _)) = accepted else { continue };
                    if !self.conditions.borrow().refusing {
                        self.accepted.fetch_add(1, Ordering::Release);
                        connections.spawn(connect(client, self.upstream, self.conditions.clone()));
                    }
                }
                cut = cuts.recv() => {
                    connections.shutdown().await;
                    let Some(done) = cut else { return };
                    let _ = done.send(());
                }
                // Connections that ended by themselves only need to be removed.
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// Forwards one connection until both sides have closed it or one fails.
async fn connect(
    client: TcpStream,
    upstream: SocketAddr,
    conditions: watch::Receiver<Conditions>,
) -> io::Result<()> {
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let to_server_task = forward(from_client, to_server, conditions.clone(), Direction::ToServer);
    let to_client_task = forward(from_server, to_client, conditions, Direction::ToClient);
    tokio::try_join!(to_server_task, to_client_task)?;
    Ok(())
}

/// Reads immediately and writes when due, so that a delay does not reduce throughput.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    conditions: watch::Receiver<Conditions>,
    direction: Direction,
) -> io::Result<()> {
    let (sender, mut kept) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let mut receiver = conditions.clone();
    let read = async move {
        loop {
            let mut bytes = vec![0; CHUNK];
            let length = from.read(&mut bytes).await?;
            if length == 0 {
                return io::Result::Ok(());
            }
            bytes.truncate(length);
            let due = Instant::now() + conditions.borrow().delay(direction);
            let _ = sender.send((due, bytes));
        }
    };
    let write = async move {
        while let Some((due, bytes)) = kept.recv().await {
            sleep_until(due).await;
            let _ = receiver.wait_for(|conditions| !conditions.stalled).await;
            to.write_all(&bytes).await?;
        }
        let _ = receiver.wait_for(|conditions| !conditions.stalled).await;
        to.shutdown().await
    };
    tokio::try_join!(read, write)?;
    Ok(())
}

impl Conditions {
    fn delay(&self, direction: Direction) -> Duration {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }
}
