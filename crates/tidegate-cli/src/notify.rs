//! Reports the state of the server to the service manager: the protocol of `sd_notify(3)`.
//!
//! A message is one datagram to the socket in `NOTIFY_SOCKET`. Without that variable nothing is
//! sent. A message that cannot be sent is logged and otherwise ignored, because the server works
//! without a service manager.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_config::{Environment, process_environment};

/// The connection to the service manager.
#[derive(Debug)]
pub(crate) struct Notifier {
    socket: Option<UnixDatagram>,
    /// How often the service manager expects a message, if it does.
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Connects to the service manager named in the environment, if any.
    pub(crate) fn from_environment() -> Self {
        let environment = process_environment();
        let socket = variable(&environment, "NOTIFY_SOCKET").and_then(|path| {
            connect(path)
                .inspect_err(|error| tracing::warn!(path, %error, "cannot reach NOTIFY_SOCKET"))
                .ok()
        });
        Self { socket, watchdog: watchdog(&environment) }
    }

    /// Reports that the listeners are open.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports that the configuration is being reloaded. [`ready`](Self::ready) ends this state.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reloading"));
    }

    /// Reports that the server stops.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=completing requests in progress");
    }

    /// Reports regularly that the runtime makes progress, if the service manager expects it. Never
    /// completes.
    pub(crate) async fn feed_watchdog(&self) {
        let Some(watchdog) = self.watchdog else { return std::future::pending().await };
        let mut interval = tokio::time::interval(watchdog / 2);
        loop {
            interval.tick().await;
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(message.as_bytes()) {
            tracing::warn!(%error, "cannot notify the service manager");
        }
    }
}

/// Connects to a socket by its path, or by its abstract name, which begins with `@`.
fn connect(path: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match path.strip_prefix('@') {
        Some(name) => socket.connect_addr(&abstract_address(name)?)?,
        None => socket.connect(path)?,
    }
    // A service manager that reads nothing must not block the server.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &str) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &str) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns how often this process must send a message.
fn watchdog(environment: &Environment) -> Option<Duration> {
    let process = variable(environment, "WATCHDOG_PID");
    if process.is_some_and(|id| id != std::process::id().to_string()) {
        return None;
    }
    let micros: u64 = variable(environment, "WATCHDOG_USEC")?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

fn variable<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
}
