//! Listening sockets: opened here, or passed by the process that started this one.

use std::net::{SocketAddr, TcpListener as StdTcpListener};

use tokio::net::TcpListener;

use super::StartError;
use crate::listener::accept;

/// Listening sockets that another process opened, such as a service manager.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Socket of the HTTP API.
    pub http: Option<StdTcpListener>,
    /// Socket of the admin API.
    pub admin: Option<StdTcpListener>,
    /// Socket of the gRPC API.
    pub grpc: Option<StdTcpListener>,
}

/// Uses the passed socket, or else binds the address.
pub(super) async fn bind(
    listener: &'static str,
    socket: Option<StdTcpListener>,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let bound = match socket {
        Some(socket) => TcpListener::from_std(socket).map(|socket| (socket, address)),
        None => accept::bind(address).await,
    };
    bound.map_err(|source| StartError::Bind { listener, address, source })
}
