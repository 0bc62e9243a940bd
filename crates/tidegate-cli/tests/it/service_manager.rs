//! The service manager's side of `tidegate serve`: readiness messages and passed sockets.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate_testkit::launch::wait_until;

use crate::program::{Ended, Serving, end, program, serve};

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn at(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(socket)
    }

    /// Returns the fields of the next message.
    fn next(&self) -> BTreeMap<String, String> {
        let mut message = [0; 4096];
        let size = self.0.recv(&mut message).unwrap();
        let text = std::str::from_utf8(&message[..size]).unwrap();
        let fields = text.lines().map(|line| line.split_once('=').unwrap());
        fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Returns the next message that is not one of the watchdog's.
    fn next_state(&self) -> BTreeMap<String, String> {
        loop {
            let message = self.next();
            if !message.contains_key("WATCHDOG") {
                return message;
            }
        }
    }
}

/// Returns the microseconds since the start of the machine, as the service manager compares them.
fn monotonic_micros() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

#[test]
fn states_are_reported_to_the_service_manager() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("notify");
    let manager = Manager::at(UnixDatagram::bind(&path).unwrap());
    let mut command = serve(here.path(), &["--database", "none"]);
    let serving = Serving::start(command.env("NOTIFY_SOCKET", &path));
    let ready = manager.next();
    assert_eq!(ready["READY"], "1");
    assert_eq!(ready["STATUS"], format!("listening on {}", serving.url));
    let before = monotonic_micros();
    serving.signal("HUP");
    let reloading = manager.next();
    let at: i64 = reloading["MONOTONIC_USEC"].parse().unwrap();
    assert!(reloading["RELOADING"] == "1" && (before..monotonic_micros()).contains(&at));
    assert_eq!(manager.next(), ready);
    assert_eq!(serving.stop("TERM").code, Some(0));
    let stopping = manager.next();
    assert!(stopping["STOPPING"] == "1" && stopping.contains_key("STATUS"), "{stopping:?}");
}

#[test]
fn the_watchdog_is_fed_through_an_abstract_socket() {
    let here = tempfile::tempdir().unwrap();
    let name = format!("tidegate-test-{}", std::process::id());
    let address = UnixAddress::from_abstract_name(&name).unwrap();
    let manager = Manager::at(UnixDatagram::bind_addr(&address).unwrap());
    let mut command = serve(here.path(), &["--database", "none"]);
    let command = command.env("NOTIFY_SOCKET", format!("@{name}"));
    // Fed twice a second. The socket holds ten messages, which nobody reads while the program stops.
    let serving = Serving::start(command.env("WATCHDOG_USEC", "1000000"));
    assert_eq!(manager.next()["READY"], "1");
    for _ in 0..2 {
        assert_eq!(manager.next()["WATCHDOG"], "1");
    }
    assert_eq!(serving.stop("TERM").code, Some(0));
    assert_eq!(manager.next_state()["STOPPING"], "1");
}

/// The watchdog of another process is not ours, and a missing service manager is no failure.
#[test]
fn an_unreachable_service_manager_is_ignored() {
    let here = tempfile::tempdir().unwrap();
    let mut command = serve(here.path(), &["--database", "none"]);
    let command = command.env("NOTIFY_SOCKET", here.path().join("missing"));
    let command = command.env("WATCHDOG_USEC", "20000").env("WATCHDOG_PID", "1");
    let ended = Serving::start(command).stop("TERM");
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("cannot reach NOTIFY_SOCKET"), "{}", ended.stderr);
}

/// Returns a command of systemd's launcher, which opens the sockets and starts the program when
/// something connects to one of them.
fn activated(here: &Path, sockets: &[(&str, SocketAddr)]) -> Command {
    let mut command = Command::new("systemd-socket-activate");
    command.current_dir(here).env_clear().env("PATH", "/usr/bin:/bin");
    for (_, address) in sockets {
        command.arg(format!("--listen={address}"));
    }
    let names: Vec<&str> = sockets.iter().map(|(name, _)| *name).collect();
    command.arg(format!("--fdname={}", names.join(":"))).arg(program());
    command.args(["serve", "--state-dir", "state", "--database", "none"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns an address that was free a moment ago.
fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn passed_sockets_replace_the_configured_ones() {
    let here = tempfile::tempdir().unwrap();
    let [http, admin, other] = [(); 3].map(|()| free_address());
    std::fs::write(here.path().join("tidegate.toml"), format!("[listen]\nhttp = \"{other}\"\n"))
        .unwrap();
    let mut command = activated(here.path(), &[("admin", admin), ("http", http)]);
    command.args(["--grpc", "127.0.0.1:0"]);
    // The first connection starts the program, which then serves it.
    let first = std::thread::spawn(move || {
        wait_until("the launcher to listen", || TcpStream::connect(http).ok())
    });
    let serving = Serving::start(&mut command);
    let _first = first.join().unwrap();
    assert_eq!(serving.url, format!("http://{http}"));
    assert_eq!(serving.admin, format!("http://{admin}"));
    let (status, body) =
        serving.post("/v1/take", r#"{"key":"a","policy":{"capacity":1,"rate":"1/s"}}"#);
    assert_eq!(status, 200, "{body}");
    assert_eq!(serving.ask("/healthz").0, 200);
    assert_eq!(serving.setting("listen.http").0, http.to_string());
    assert!(TcpStream::connect(other).is_err(), "the configured address is not used");
    assert_eq!(serving.stop("TERM").code, Some(0));
}

/// Starts the program with one passed socket, connects to it, and returns how the program ends.
fn end_activated(name: &str, address: SocketAddr) -> (Option<i32>, String) {
    let here = tempfile::tempdir().unwrap();
    let mut child = activated(here.path(), &[(name, address)]).spawn().unwrap();
    let to = SocketAddr::from(([127, 0, 0, 1], address.port()));
    let _first = wait_until("the launcher to listen", || TcpStream::connect(to).ok());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.wait().unwrap().code(), stderr)
}

/// A passed socket is no way around the rule for addresses beyond loopback.
#[test]
fn a_passed_admin_socket_beyond_loopback_requires_tokens() {
    let address = SocketAddr::from(([0, 0, 0, 0], free_address().port()));
    let (code, stderr) = end_activated("admin", address);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("write_tokens"), "{stderr}");
}

/// A mistake in a socket unit is reported instead of opening another port.
#[test]
fn unusable_sockets_are_reported() {
    let here = tempfile::tempdir().unwrap();
    let (code, stderr) = end_activated("web", free_address());
    assert_eq!(code, Some(2), "{stderr}");
    for text in ["file descriptor 3", "\"web\"", "FileDescriptorName="] {
        assert!(stderr.contains(text), "{text} in {stderr}");
    }
    let mut command = serve(here.path(), &[]);
    let Ended { code, stderr, .. } =
        end(command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "http").stdin(Stdio::null()));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("\"http\" is not a listening TCP socket"), "{stderr}");
}
