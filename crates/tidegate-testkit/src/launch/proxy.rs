//! A network that is slow, silent or torn, between a client and a server on one machine.
//!
//! Bytes arrive late or not at all, but never out of order: a stalled connection goes on where it
//! was, as one over a real network would, and a cut one is gone for both ends.

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

/// The most bytes that are read at once.
const CHUNK: usize = 16 << 10;

/// A TCP proxy on a loopback port, with a thread of its own until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    terms: watch::Sender<Terms>,
    accepted: Arc<AtomicU64>,
    orders: Option<mpsc::UnboundedSender<Cut>>,
    thread: Option<JoinHandle<()>>,
}

/// What happens to the bytes from now on.
#[derive(Clone, Copy, Debug, Default)]
struct Terms {
    to_server: Duration,
    to_client: Duration,
    stalled: bool,
    refusing: bool,
}

/// The order to drop all connections, and where to tell that it is done.
type Cut = blocking::Sender<()>;

/// Which way bytes go.
#[derive(Clone, Copy, Debug)]
enum Way {
    ToServer,
    ToClient,
}

impl Proxy {
    /// A proxy before `upstream` that does nothing yet but pass everything on.
    ///
    /// # Panics
    /// When there is no free port, or no thread to be had.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free loopback port");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (terms, heard) = watch::channel(Terms::default());
        let (orders, received) = mpsc::unbounded_channel();
        let accepted = Arc::new(AtomicU64::new(0));
        let door = Door { listener, upstream, terms: heard, accepted: Arc::clone(&accepted) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a current-thread runtime");
        let thread = std::thread::spawn(move || runtime.block_on(door.serve(received)));
        Self { address, terms, accepted, orders: Some(orders), thread: Some(thread) }
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were made since the start, refused ones not counted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }

    /// Delays whatever arrives from now on by so much, each way: a round trip takes twice as long.
    pub fn set_delay(&self, delay: Duration) {
        self.set_delays(delay, delay);
    }

    /// Delays whatever arrives from now on, with a time for each way.
    pub fn set_delays(&self, to_server: Duration, to_client: Duration) {
        self.terms.send_modify(|terms| (terms.to_server, terms.to_client) = (to_server, to_client));
    }

    /// Passes nothing on, either way, until [`Proxy::resume`]. Connections are still accepted, and
    /// what arrives is kept.
    pub fn stall(&self) {
        self.terms.send_modify(|terms| terms.stalled = true);
    }

    /// Passes on what was kept, and everything after it.
    pub fn resume(&self) {
        self.terms.send_modify(|terms| terms.stalled = false);
    }

    /// Closes new connections at once, until [`Proxy::accept`]. Those there are stay.
    pub fn refuse(&self) {
        self.terms.send_modify(|terms| terms.refusing = true);
    }

    /// Takes new connections again.
    pub fn accept(&self) {
        self.terms.send_modify(|terms| terms.refusing = false);
    }

    /// Drops all connections there are. When this returns they are closed on both sides; what was
    /// on its way is lost.
    pub fn cut(&self) {
        let (done, heard) = blocking::channel();
        if let Some(orders) = &self.orders {
            let _ = orders.send(done);
        }
        // An error means that the proxy's thread is gone, and its connections with it.
        let _ = heard.recv();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The listening side, on the thread of the proxy.
#[derive(Debug)]
struct Door {
    listener: StdListener,
    upstream: SocketAddr,
    terms: watch::Receiver<Terms>,
    accepted: Arc<AtomicU64>,
}

impl Door {
    /// Serves until nobody can give orders any more.
    async fn serve(self, mut orders: mpsc::UnboundedReceiver<Cut>) {
        let listener = TcpListener::from_std(self.listener).expect("a socket for the runtime");
        let mut live = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((client, _)) = accepted else { continue };
                    if !self.terms.borrow().refusing {
                        self.accepted.fetch_add(1, Ordering::Release);
                        live.spawn(connect(client, self.upstream, self.terms.clone()));
                    }
                }
                order = orders.recv() => {
                    live.shutdown().await;
                    let Some(done) = order else { return };
                    let _ = done.send(());
                }
                // A connection that ended by itself, well or not, is only to be forgotten.
                Some(_) = live.join_next() => {}
            }
        }
    }
}

/// One connection, until both sides have closed it or one is broken.
async fn connect(
    client: TcpStream,
    upstream: SocketAddr,
    terms: watch::Receiver<Terms>,
) -> io::Result<()> {
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let there = carry(from_client, to_server, terms.clone(), Way::ToServer);
    let back = carry(from_server, to_client, terms, Way::ToClient);
    tokio::try_join!(there, back)?;
    Ok(())
}

/// Reads at once and writes when due, so that a delay takes nothing off the throughput.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    terms: watch::Receiver<Terms>,
    way: Way,
) -> io::Result<()> {
    let (sender, mut kept) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let mut heard = terms.clone();
    let read = async move {
        loop {
            let mut bytes = vec![0; CHUNK];
            let length = from.read(&mut bytes).await?;
            if length == 0 {
                return io::Result::Ok(());
            }
            bytes.truncate(length);
            let due = Instant::now() + terms.borrow().delay(way);
            let _ = sender.send((due, bytes));
        }
    };
    let write = async move {
        while let Some((due, bytes)) = kept.recv().await {
            sleep_until(due).await;
            let _ = heard.wait_for(|terms| !terms.stalled).await;
            to.write_all(&bytes).await?;
        }
        let _ = heard.wait_for(|terms| !terms.stalled).await;
        to.shutdown().await
    };
    tokio::try_join!(read, write)?;
    Ok(())
}

impl Terms {
    fn delay(&self, way: Way) -> Duration {
        match way {
            Way::ToServer => self.to_server,
            Way::ToClient => self.to_client,
        }
    }
}
