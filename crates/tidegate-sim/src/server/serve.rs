//! Serving of real sockets and of in-process connections.
//!
//! Both use HTTP/1.1 through the same code. This module only handles the lifetime of connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::server::connection::{Connection, ConnectionControl, ServerStream, Transport};
use crate::server::exchange;
use crate::simulator::{Shared, Simulator};

/// Buffer size of an in-process connection.
const BUFFER: usize = 64 * 1024;
/// Delay before binding a busy port again.
const REBIND: Duration = Duration::from_millis(5);

impl Simulator {
    /// Serves a socket until the future is dropped, which also closes its connections.
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub async fn serve(&self, listener: TcpListener) -> io::Result<()> {
        let address = listener.local_addr()?;
        let mut listener = Some(listener);
        let mut closed = self.shared.closed.subscribe();
        let mut connections = JoinSet::new();
        loop {
            let until = refused_until(*closed.borrow_and_update());
            if let Some(until) = until {
                // Only a closed port refuses connections.
                listener = None;
                tokio::select! {
                    () = sleep_until(until) => {}
                    _ = closed.changed() => {}
                }
                continue;
            }
            let socket = match listener.take() {
                Some(socket) => socket,
                None => bind_again(address).await?,
            };
            tokio::select! {
                accepted = socket.accept() => match accepted {
                    Ok((stream, _)) => {
                        let _ = stream.set_nodelay(true);
                        connections.spawn(run(Arc::clone(&self.shared), stream, Arc::default()));
                    }
                    Err(error) if is_client_error(&error) => {}
                    Err(error) => return Err(error),
                },
                _ = closed.changed() => {}
                Some(_) = connections.join_next() => {}
            }
            listener = Some(socket);
        }
    }

    /// Opens an in-process connection that speaks HTTP/1.1.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use tidegate_sim::{Account, Dialect, Limits, Simulator};
    /// use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    ///
    /// let account = Account::new(Dialect::Ollama, "local", "").any_model(Limits::new());
    /// let simulator = Simulator::builder().account(account).build()?;
    /// let mut connection = simulator.connect()?;
    /// let body = r#"{"model":"llama3","stream":false,"messages":[]}"#;
    /// let head = "POST /api/chat HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n";
    /// let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    /// connection.write_all(request.as_bytes()).await?;
    /// let mut response = String::new();
    /// connection.read_to_string(&mut response).await?;
    /// assert!(response.starts_with("HTTP/1.1 200 OK"));
    /// assert!(response.contains(r#""eval_count":100"#));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `ConnectionRefused`, while [connections are refused](Simulator::refuse_connections).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn connect(&self) -> io::Result<Connection> {
        if refused_until(*self.shared.closed.borrow()).is_some() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (client_half, server_half) = tokio::io::duplex(BUFFER);
        let control = Arc::new(ConnectionControl::default());
        tokio::spawn(run(Arc::clone(&self.shared), server_half, Arc::clone(&control)));
        Ok(Connection::new(client_half, control))
    }
}

/// Serves one connection until it ends.
async fn run<T: Transport>(shared: Arc<Shared>, io: T, control: Arc<ConnectionControl>) {
    let closed = shared.closed.subscribe();
    let served = ServerStream::new(io, Arc::clone(&control));
    let service = {
        let control = Arc::clone(&control);
        service_fn(move |request| {
            exchange::handle(Arc::clone(&shared), Arc::clone(&control), request)
        })
    };
    let connection = http1::Builder::new()
        // The date is the simulator's. No timeout that a test did not ask for.
        .auto_date_header(false)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(served), service);
    tokio::select! {
        // Errors of the client do not matter.
        _ = connection => {}
        () = control.ended() => {}
        () = until_refusing(closed) => control.reset(),
    }
}

/// Waits until connections are refused.
async fn until_refusing(mut closed: watch::Receiver<Option<Instant>>) {
    if closed.wait_for(|until| refused_until(*until).is_some()).await.is_err() {
        // The sender is gone, so connections are never refused.
        std::future::pending::<()>().await;
    }
}

fn refused_until(until: Option<Instant>) -> Option<Instant> {
    until.filter(|until| Instant::now() < *until)
}

/// Binds the same address again. Closing connections do not prevent it; if another program took the
/// port, this waits until it is free.
async fn bind_again(address: SocketAddr) -> io::Result<TcpListener> {
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => sleep(REBIND).await,
            bound => return bound,
        }
    }
}

fn is_client_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
