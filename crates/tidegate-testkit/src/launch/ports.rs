//! Free ports for servers that are killed and restarted.
//!
//! Ports that the system assigns for `:0` do not work here. While the server is down, the system
//! may assign the same port to an outgoing connection, and a client that connects to the dead
//! server from that very port is connected to itself. So ports are drawn from below the range that
//! Linux uses for outgoing connections.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Above the ports of common services, and below the default range for outgoing connections.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;

/// Ports that this process has drawn. A server keeps its port while it is down, so the port must
/// not be drawn again although it is not bound.
static DRAWN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns two free ports. Another process may still bind them first.
pub(super) fn free_pair() -> [u16; 2] {
    [free(), free()]
}

/// The loopback address with a port.
pub(super) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn free() -> u16 {
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    // Every `RandomState` differs from the previous one, and from those of other processes.
    let draws = (0..1_000_u16).map(|draw| RandomState::new().hash_one(draw).to_le_bytes());
    let mut ports = draws.map(|random| FIRST + u16::from_le_bytes([random[0], random[1]]) % COUNT);
    let port =
        ports.find(|port| !drawn.contains(port) && TcpListener::bind(loopback(*port)).is_ok());
    let port = port.expect("no free loopback port");
    drawn.insert(port);
    port
}
