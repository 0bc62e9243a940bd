//! nginx as a plain reverse proxy, configured for a streaming provider.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tidegate_testkit::launch::wait_until;

/// A running nginx. It is stopped on drop, with its workers.
#[derive(Debug)]
pub(super) struct Nginx {
    program: PathBuf,
    folder: TempDir,
    child: Child,
    address: SocketAddr,
}

impl Nginx {
    /// Starts it in front of a provider, with this many workers.
    pub(super) fn start(program: PathBuf, upstream: SocketAddr, workers: usize) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-nginx-").tempdir()?;
        // The port is free now. If another process binds it first, nginx exits, which is detected
        // below.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let settings = settings(folder.path(), address, upstream, workers);
        fs::write(folder.path().join("nginx.conf"), settings)?;
        let child = command(&program, folder.path()).spawn().context("cannot start nginx")?;
        let mut nginx = Self { program, folder, child, address };
        wait_until("nginx to listen", || {
            let ended = nginx.child.try_wait().is_ok_and(|status| status.is_some());
            (ended || TcpStream::connect(address).is_ok()).then_some(())
        });
        let running = nginx.child.try_wait()?.is_none();
        ensure!(running, "nginx did not start: {}", nginx.log());
        Ok(nginx)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The id of the master process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("error.log")).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // A killed master process could not stop its workers.
        let stopped = command(&self.program, self.folder.path()).args(["-s", "stop"]).status();
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("-p").arg(folder).arg("-e").arg(folder.join("error.log"));
    command.arg("-c").arg(folder.join("nginx.conf"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// As many workers as our program has threads, keep-alive on both sides, and no buffering.
fn settings(folder: &Path, address: SocketAddr, upstream: SocketAddr, workers: usize) -> String {
    let folder = folder.display();
    let places: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|part| format!("    {part}_temp_path {folder}/{part};\n"))
        .concat();
    format!(
        "daemon off;
worker_processes {workers};
pid {folder}/nginx.pid;
error_log {folder}/error.log error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_requests 100000000;
{places}    upstream provider {{
        server {upstream};
        keepalive 64;
        keepalive_requests 100000000;
    }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
        }}
    }}
}}
"
    )
}
