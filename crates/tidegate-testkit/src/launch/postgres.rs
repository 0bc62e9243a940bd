//! A PostgreSQL server that belongs to a test.

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

/// How often another port is tried when somebody was faster.
const ATTEMPTS: usize = 10;

/// The one user there is, who may do everything.
const USER: &str = "testkit";
const PASSWORD: &str = "t@stkit";

/// A server with a port and a folder of its own, and a password. It is stopped when dropped, and
/// when the process of the test ends in any other way, so it may also live in a static.
#[derive(Debug)]
pub struct PostgresServer {
    port: u16,
    certificates: Option<Certificates>,
    databases: AtomicU32,
    process: Mutex<Option<Process>>,
    dir: ServerDir,
}

impl PostgresServer {
    /// Starts a plain server, and waits until it answers.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, or the server does not answer within ten seconds; the
    /// text has the end of its log.
    #[must_use]
    pub fn start() -> Self {
        Self::launch(None)
    }

    /// Starts a server that serves TLS beside plain connections, with a certificate for
    /// `localhost` and 127.0.0.1 from an authority of its own.
    ///
    /// # Panics
    /// As [`PostgresServer::start`].
    #[must_use]
    pub fn start_with_tls() -> Self {
        Self::launch(Some(Certificates::write))
    }

    /// The URL of the database that every server has, with the password.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Makes an empty database, and returns its URL.
    ///
    /// # Panics
    /// When the server does not make it.
    #[must_use]
    pub fn fresh_database(&self) -> String {
        let name = format!("fresh{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let _ = self.sql(&self.url(), &format!("CREATE DATABASE {name}"));
        self.url_of(&name)
    }

    /// Has PostgreSQL's own client run statements in a database, and returns what they return: a
    /// line for each row, with `|` between its columns.
    ///
    /// # Panics
    /// When the server is down, or refuses a statement.
    #[must_use]
    pub fn sql(&self, url: &str, statements: &str) -> String {
        let mut client = Command::new(programs::postgres().join("psql"));
        client.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statements, url]);
        let output = client.stdin(Stdio::null()).output().expect("psql starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{statements}: {said}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The port where clients connect.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate of the authority that a client must trust.
    ///
    /// # Panics
    /// When the server has no TLS.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.certificates.as_ref().expect("a server with TLS").ca.clone()
    }

    /// What the server wrote since it was first started.
    #[must_use]
    pub fn log(&self) -> String {
        self.dir.log()
    }

    /// Ends the server at once, in the middle of whatever it does. When this returns it is gone
    /// with all of its processes, and its port refuses. Killing a killed server does nothing.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            // A server that is killed outright leaves its children, and they the port.
            process.quit(self.dir.guard());
        }
    }

    /// Starts a killed server again with the same port and data, and waits until it answers.
    ///
    /// # Panics
    /// When the server runs, or does not answer within ten seconds.
    pub fn start_again(&self) {
        let mut process = self.process();
        assert!(process.is_none(), "PostgreSQL still runs");
        // Whoever looks for a free port binds this one for a moment, if it comes upon it.
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
            // The server refuses a key that others can read.
            let mode = fs::Permissions::from_mode(0o600);
            fs::set_permissions(&files.key, mode).expect("a file of ours");
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
        // A test that panicked with the lock held has changed nothing halfway.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes the files of an empty server.
fn initialize(dir: &ServerDir) {
    let folder = dir.folder();
    fs::write(folder.join("password"), PASSWORD).expect("the folder of a server can be written");
    privileges::hand_over(folder);
    let mut initdb = privileges::command(programs::postgres().join("initdb"));
    initdb.arg("--pgdata").arg(folder.join("data")).arg("--pwfile").arg(folder.join("password"));
    initdb.args(["--username", USER, "--auth", "scram-sha-256", "--encoding", "UTF8"]);
    initdb.args(["--locale", "C", "--no-sync"]).current_dir(folder).stdin(Stdio::null());
    let output = initdb.output().expect("initdb starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "PostgreSQL makes no files: {said}");
}

fn serve(dir: &ServerDir, port: u16, tls: Option<&Certificates>) -> Result<Process, Failure> {
    let folder = dir.folder();
    let data = folder.join("data");
    let mut command = privileges::command(programs::postgres().join("postgres"));
    command.arg("-D").arg(&data).arg("-k").arg(folder).args(["-p", &port.to_string()]);
    // The power does not fail in a test, so nothing is synced; what is killed loses nothing by it.
    for setting in ["listen_addresses=127.0.0.1", "fsync=off", "shared_buffers=16MB"] {
        command.args(["-c", setting]);
    }
    if let Some(files) = tls {
        let [certificate, key] = [&files.certificate, &files.key].map(|path| path.display());
        command.args(["-c", "ssl=on", "-c", &format!("ssl_cert_file={certificate}")]);
        command.args(["-c", &format!("ssl_key_file={key}")]);
    }
    dir.start("PostgreSQL", &mut command, |process| {
        // The server keeps this file: its number is the first line, how it stands the eighth.
        let status = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        let ours = status.lines().next() == Some(&process.id().to_string());
        let ready = status.lines().nth(7).is_some_and(|line| line.trim() == "ready");
        if ours && ready { Ok(()) } else { Err(format!("its status is {status:?}")) }
    })
}
