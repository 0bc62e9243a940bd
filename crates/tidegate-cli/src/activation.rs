//! Socket activation: listening sockets that the service manager opened and passed to this process.
//!
//! They are named `http`, `admin` and `grpc` (`FileDescriptorName=` of a socket unit). Their
//! addresses replace the configured ones, so that every check of an address sees the one in use. A
//! listener without a passed socket opens its own.

use std::io;
use std::net::TcpListener;

use listenfd::ListenFd;
use tidegate_config::{Key, Loader, process_environment};
use tidegate_server::Sockets;

/// Why a passed socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActivationError {
    #[error(
        "the socket passed as file descriptor {fd} has the name {name:?}, which must be http, \
         admin or grpc; set FileDescriptorName= in its socket unit"
    )]
    Name { fd: usize, name: String },
    #[error("two passed sockets have the name {0:?}; pass one socket per name")]
    Duplicate(String),
    #[error("the passed socket {name:?} is not a listening TCP socket: {source}")]
    Socket { name: String, source: io::Error },
}

/// The first passed file descriptor.
const FIRST: usize = 3;

/// Takes the passed sockets. Call this once, before threads are started, because it removes
/// variables from the environment.
///
/// # Errors
/// If a socket has no known name, or is not a listening TCP socket.
pub(crate) fn take_sockets() -> Result<Sockets, ActivationError> {
    let environment = process_environment();
    let names = environment.iter().find(|(name, _)| name == "LISTEN_FDNAMES");
    let names: Vec<&str> = names.map_or_else(Vec::new, |(_, names)| names.split(':').collect());
    let mut passed = ListenFd::from_env();
    let mut sockets = Sockets::default();
    for index in 0..passed.len() {
        let name = names.get(index).copied().unwrap_or_default();
        let slot = match name {
            "http" => &mut sockets.http,
            "admin" => &mut sockets.admin,
            "grpc" => &mut sockets.grpc,
            _ => return Err(ActivationError::Name { fd: FIRST + index, name: name.to_owned() }),
        };
        if slot.is_some() {
            return Err(ActivationError::Duplicate(name.to_owned()));
        }
        let taken = passed.take_tcp_listener(index).and_then(prepare);
        *slot =
            taken.map_err(|source| ActivationError::Socket { name: name.to_owned(), source })?;
    }
    Ok(sockets)
}

/// Makes a socket non-blocking, as the runtime requires.
fn prepare(socket: Option<TcpListener>) -> io::Result<Option<TcpListener>> {
    if let Some(socket) = &socket {
        socket.set_nonblocking(true)?;
    }
    Ok(socket)
}

/// Sets the addresses of passed sockets as if given as flags.
pub(crate) fn configure(sockets: &Sockets, mut loader: Loader) -> Loader {
    for (key, socket) in [
        (Key::ListenHttp, &sockets.http),
        (Key::ListenAdmin, &sockets.admin),
        (Key::ListenGrpc, &sockets.grpc),
    ] {
        if let Some(Ok(address)) = socket.as_ref().map(TcpListener::local_addr) {
            loader = loader.flag(key, address.to_string());
        }
    }
    loader
}
