//! Free ports for servers that will be killed and started again.
//!
//! The ports that the system hands out for `:0` are no good for that. While the server is down,
//! the system may give the same port to any outgoing connection; and a client that tries to reach
//! the dead server from that very port is connected with itself. So ports are drawn from below
//! the range that Linux uses for outgoing connections.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Above what services usually listen on, below where outgoing connections start by default.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;

/// What this process has drawn. A port stays with its server while that is down, so it must not
/// be drawn again, though nobody listens.
static DRAWN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Two free ports. They are free now; another process may still be faster to bind them.
pub(super) fn free_pair() -> [u16; 2] {
    [free(), free()]
}

/// The loopback address with a port.
pub(super) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn free() -> u16 {
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    // Every `RandomState` differs from the one before, and from those of other processes.
    let draws = (0..1_000_u16).map(|draw| RandomState::new().hash_one(draw).to_le_bytes());
    let mut ports = draws.map(|random| FIRST + u16::from_le_bytes([random[0], random[1]]) % COUNT);
    let port =
        ports.find(|port| !drawn.contains(port) && TcpListener::bind(loopback(*port)).is_ok());
    let port = port.expect("a free loopback port");
    drawn.insert(port);
    port
}
