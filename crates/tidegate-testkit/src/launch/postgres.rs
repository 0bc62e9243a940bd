//! A PostgreSQL server for a test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::certificates::Certificates;
use super::deadline::wait_until;
use super::process::{Process, privileges};
use super::server_dir::{Failure, ServerDir};
use super::{ports, programs};

/// Number of ports to try when another process binds the port first.
const ATTEMPTS: usize = 10;

/// The only user, a superuser.
const USER: &str = "testkit";
const PASSWORD: &str = "t@stkit";

/// A password-protected PostgreSQL server with its own port and folder. It is stopped when dropped,
/// and when the test process ends in any other way, so it may also be a static.
#[derive(Debug)]
pub struct PostgresServer {
    port: u16,
    certificates: Option<Certificates>,
    databases: AtomicU32,
    process: Mutex<Option<Process>>,
    dir: ServerDir,
}

impl PostgresServer {
    /// Starts a server without TLS and waits until it is ready.
    ///
    /// # Panics
    /// If PostgreSQL is not installed, or the server is not ready within ten seconds; the message has
    /// the end of its log.
    #[must_use]
    pub fn start() -> Self {
        Self::launch(None)
    }

    /// Starts a server that accepts TLS and plain connections, with a certificate for `localhost`
    /// and 127.0.0.1 from its own authority.
    ///
    /// # Panics
    /// As [`PostgresServer::start`].
    #[must_use]
    pub fn start_with_tls() -> Self {
        Self::launch(Some(Certificates::write))
    }

    /// The URL of the default database `postgres`, with the password.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Creates an empty database and returns its URL.
    ///
    /// # Panics
    /// If the server cannot create it.
    #[must_use]
    pub fn fresh_database(&self) -> String {
        let name = format!("fresh{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let _ = self.sql(&self.url(), &format!("CREATE DATABASE {name}"));
        self.url_of(&name)
    }

    /// Runs statements with `psql` and returns the result: one line per row, columns separated by
    /// `|`.
    ///
    /// # Panics
    /// If the server is down or rejects a statement.
    #[must_use]
    pub fn sql(&self, url: &str, statements: &str) -> String {
        let mut client = Command::new(programs::postgres().join("psql"));
        client.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statements, url]);
        let output = client.stdin(Stdio::null()).output().expect("cannot start psql");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{statements}: {stderr}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The port on which the server listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate file of the authority that clients must trust.
    ///
    /// # Panics
    /// If the server has no TLS.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.certificates.as_ref().expect("a server with TLS").ca.clone()
    }

    /// The log of the server since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        self.dir.log()
    }

    /// Stops the server immediately, without a clean shutdown. On return, all of its processes have
    /// ended and its port refuses connections. Does nothing if the server is already down.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            // With SIGKILL the child processes would survive and keep the port.
            process.quit(self.dir.guard());
        }
    }

    /// Starts a killed server again with the same port and data, and waits until it is ready.
    ///
    /// # Panics
    /// If the server is running, or is not ready within ten seconds.
    pub fn restart(&self) {
        let mut process = self.process();
        assert!(process.is_none(), "PostgreSQL is still running");
        // Another test that looks for a free port may bind this one for a moment.
        let started = wait_until(&format!("port {}", self.port), || {
            let started = serve(&self.dir, self.port, self.certificates.as_ref());
            if started.as_ref().is_err_and(Failure::port_taken) { None } else { Some(started) }
        });
        *process = Some(started.unwrap_or_else(|failure| panic!("{}", failure.report())));
    }

    fn launch(certificates: Option<fn(&Path) -> Certificates>) -> Self {
        let dir = ServerDir::new("tidegate-postgres-");
        let certificates = certificates.map(|write| write(dir.folder()));
        if let Some(files) = &certificates {
            // The server rejects a key file that other users can read.
            let mode = fs::Permissions::from_mode(0o600);
            fs::set_permissions(&files.key, mode).expect("cannot change the mode of the key file");
        }
        initialize(&dir);
        let mut attempts = 0;
        loop {
            let [port, _] = ports::free_pair();
            attempts += 1;
            match serve(&dir, port, certificates.as_ref()) {
                Ok(process) => {
                    let process = Mutex::new(Some(process));
                    return Self { port, certificates, databases: AtomicU32::new(0), process, dir };
                }
                Err(failure) if failure.port_taken() && attempts < ATTEMPTS => {}
                Err(failure) => panic!("{}", failure.report()),
            }
        }
    }

    fn url_of(&self, name: &str) -> String {
        let password = PASSWORD.replace('@', "%40");
        format!("postgres://{USER}:{password}@127.0.0.1:{}/{name}", self.port)
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        // A panic with the lock held leaves no partial change.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates the data folder with `initdb`.
fn initialize(dir: &ServerDir) {
    let folder = dir.folder();
    fs::write(folder.join("password"), PASSWORD).expect("cannot write to the server's folder");
    privileges::hand_over(folder);
    let mut initdb = privileges::command(programs::postgres().join("initdb"));
    initdb.arg("--pgdata").arg(folder.join("data")).arg("--pwfile").arg(folder.join("password"));
    initdb.args(["--username", USER, "--auth", "scram-sha-256", "--encoding", "UTF8"]);
    initdb.args(["--locale", "C", "--no-sync"]).current_dir(folder).stdin(Stdio::null());
    let output = initdb.output().expect("cannot start initdb");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "initdb failed: {stderr}");
}

fn serve(dir: &ServerDir, port: u16, tls: Option<&Certificates>) -> Result<Process, Failure> {
    let folder = dir.folder();
    let data = folder.join("data");
    let mut command = privileges::command(programs::postgres().join("postgres"));
    command.arg("-D").arg(&data).arg("-k").arg(folder).args(["-p", &port.to_string()]);
    // `fsync` only protects against a crash of the system, not of the server.
    for setting in ["listen_addresses=127.0.0.1", "fsync=off", "shared_buffers=16MB"] {
        command.args(["-c", setting]);
    }
    if let Some(files) = tls {
        let [certificate, key] = [&files.certificate, &files.key].map(|path| path.display());
        command.args(["-c", "ssl=on", "-c", &format!("ssl_cert_file={certificate}")]);
        command.args(["-c", &format!("ssl_key_file={key}")]);
    }
    dir.start("PostgreSQL", &mut command, |process| {
        // The server maintains this file: line 1 is its process id, line 8 its status.
        let status = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        let ours = status.lines().next() == Some(&process.id().to_string());
        let ready = status.lines().nth(7).is_some_and(|line| line.trim() == "ready");
        if ours && ready { Ok(()) } else { Err(format!("its status is {status:?}")) }
    })
}
