//! The runtime of Cloudflare Workers, `workerd`, for a test.
//!
//! It runs the Worker that `cargo xtask worker` has bundled, or other modules, with Durable Objects
//! in a folder of its own. Storage is always on disk: the runtime gives objects in memory no SQL.
//! Nothing leaves the machine.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::deadline::wait_until;
use super::process::Process;
use super::server_dir::{Failure, ServerDir};
use super::{ports, programs};

/// Number of ports to try when another process binds the port first.
const ATTEMPTS: usize = 10;

/// Timeout of one attempt to reach a starting runtime.
const ATTEMPT: Duration = Duration::from_millis(500);

/// What the runtime prints once a socket listens.
const LISTENS: &str = "\"event\":\"listen\"";

/// The behaviour of the runtime is that of this date.
const COMPATIBILITY_DATE: &str = "2026-01-01";

/// A Workers runtime with its own port and storage. It is killed when dropped, and when the test
/// process ends in any other way, so it may also be a static.
#[derive(Debug)]
pub struct Workerd {
    port: u16,
    process: Mutex<Option<Process>>,
    dir: ServerDir,
}

/// Settings of a [`Workerd`].
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkerdBuilder {
    modules: Vec<Module>,
    bindings: Vec<(String, String)>,
    class: String,
    namespace: String,
}

/// The kind of a module of a Worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleKind {
    /// JavaScript.
    EsModule,
    /// WebAssembly.
    Wasm,
}

#[derive(Clone, Debug)]
struct Module {
    name: String,
    kind: ModuleKind,
    path: PathBuf,
}

impl Workerd {
    /// Returns a builder with the bundled Worker and no bindings except that of its Durable
    /// Objects.
    ///
    /// # Panics
    /// If the Worker is not bundled.
    pub fn builder() -> WorkerdBuilder {
        let bundle = programs::worker_bundle();
        WorkerdBuilder::new()
            .module("index.js", ModuleKind::EsModule, bundle.join("index.js"))
            .module("shard.wasm", ModuleKind::Wasm, bundle.join("shard.wasm"))
    }

    /// The `http://` URL of the Worker, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The address on which the Worker listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        ports::loopback(self.port)
    }

    /// The process id of the runtime.
    ///
    /// # Panics
    /// If it was stopped.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().as_ref().expect("workerd was stopped").id()
    }

    /// The log of the runtime since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        self.dir.log()
    }

    /// The folder with the storage of the objects.
    #[must_use]
    pub fn storage(&self) -> PathBuf {
        storage(&self.dir)
    }

    /// Kills the runtime with SIGKILL. On return it has ended, and its port refuses connections.
    /// Does nothing if it is already down.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill(self.dir.guard());
        }
    }

    /// Stops the runtime with SIGTERM, after which it completes requests, and waits until it has
    /// ended. Does nothing if it is already down.
    pub fn stop(&self) {
        if let Some(mut process) = self.process().take() {
            process.terminate(self.dir.guard());
        }
    }

    /// Freezes the runtime with SIGSTOP. The system still accepts connections for it.
    ///
    /// # Panics
    /// If it was stopped or has ended.
    pub fn freeze(&self) {
        self.process().as_mut().expect("workerd was stopped").freeze();
    }

    /// Resumes a frozen runtime with SIGCONT.
    ///
    /// # Panics
    /// If it was stopped or has ended.
    pub fn thaw(&self) {
        self.process().as_mut().expect("workerd was stopped").thaw();
    }

    /// Starts a killed or stopped runtime again with the same port, storage and settings, and waits
    /// until it is ready.
    ///
    /// # Panics
    /// If it is running, or is not ready within ten seconds.
    pub fn restart(&self) {
        let mut process = self.process();
        assert!(process.is_none(), "workerd is still running");
        // Another test that looks for a free port may bind this one for a moment.
        let started = wait_until(&format!("port {}", self.port), || {
            let started = serve(&self.dir, self.port);
            if started.as_ref().is_err_and(Failure::port_taken) { None } else { Some(started) }
        });
        *process = Some(started.unwrap_or_else(|failure| panic!("{}", failure.report())));
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        // A panic with the lock held leaves no partial change.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Workerd {
    fn drop(&mut self) {
        self.kill();
    }
}

impl WorkerdBuilder {
    /// Returns a builder without modules. The first that is added is the Worker.
    #[expect(clippy::new_without_default, reason = "a Worker without modules does not start")]
    pub fn new() -> Self {
        Self {
            modules: Vec::new(),
            bindings: Vec::new(),
            class: "RateLimiterDO".to_owned(),
            namespace: "RATE_LIMITER".to_owned(),
        }
    }

    /// Adds a module under the name with which others import it. The file is copied.
    pub fn module(mut self, name: &str, kind: ModuleKind, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_path_buf();
        self.modules.push(Module { name: name.to_owned(), kind, path });
        self
    }

    /// Adds a binding with a text.
    pub fn binding(mut self, name: &str, value: &str) -> Self {
        self.bindings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the secret that requests from outside need.
    pub fn secret(self, secret: &str) -> Self {
        self.binding("TIDEGATE_SECRET", secret)
    }

    /// Lets requests set the time of the objects.
    pub fn manual_clock(self) -> Self {
        self.binding("TIDEGATE_MANUAL_CLOCK", "1")
    }

    /// Sets the class of the Durable Objects and the name of the binding to them.
    pub fn objects(mut self, class: &str, binding: &str) -> Self {
        self.class = class.to_owned();
        self.namespace = binding.to_owned();
        self
    }

    /// Starts the runtime and waits until it responds.
    ///
    /// # Panics
    /// If `workerd` is not installed, a module cannot be read, or the runtime does not respond
    /// within ten seconds; the message has the end of its log.
    #[must_use]
    pub fn start(self) -> Workerd {
        let dir = ServerDir::new("tidegate-workerd-");
        fs::create_dir(storage(&dir)).expect("cannot create a folder for the storage");
        for (index, module) in self.modules.iter().enumerate() {
            // The runtime reads only files below the folder of its settings.
            if let Err(error) = fs::copy(&module.path, dir.folder().join(file_name(index))) {
                panic!("cannot copy {}: {error}", module.path.display());
            }
        }
        let mut attempts = 0;
        loop {
            let [port, _] = ports::free_pair();
            dir.write_settings(&self.settings(port));
            attempts += 1;
            match serve(&dir, port) {
                Ok(process) => return Workerd { port, process: Mutex::new(Some(process)), dir },
                Err(failure) if failure.port_taken() && attempts < ATTEMPTS => {}
                Err(failure) => panic!("{}", failure.report()),
            }
        }
    }

    /// The settings in the runtime's format, a constant of a Cap'n Proto schema.
    fn settings(&self, port: u16) -> String {
        let mut modules = String::new();
        for (index, module) in self.modules.iter().enumerate() {
            let kind = match module.kind {
                ModuleKind::EsModule => "esModule",
                ModuleKind::Wasm => "wasm",
            };
            let (name, file) = (quoted(&module.name), quoted(&file_name(index)));
            let _ = writeln!(modules, "    (name = {name}, {kind} = embed {file}),");
        }
        let mut bindings = String::new();
        for (name, value) in &self.bindings {
            let _ = writeln!(bindings, "    (name = {}, text = {}),", quoted(name), quoted(value));
        }
        let (class, namespace) = (quoted(&self.class), quoted(&self.namespace));
        format!(
            "using Workerd = import \"/workerd/workerd.capnp\";
const config :Workerd.Config = (
  services = [
    (name = \"worker\", worker = .worker),
    (name = \"storage\", disk = (path = \"storage\", writable = true)),
  ],
  sockets = [
    (name = \"http\", address = \"127.0.0.1:{port}\", http = (), service = \"worker\"),
  ],
);
const worker :Workerd.Worker = (
  compatibilityDate = \"{COMPATIBILITY_DATE}\",
  modules = [
{modules}  ],
  durableObjectNamespaces = [
    (className = {class}, uniqueKey = {class}, enableSql = true),
  ],
  durableObjectStorage = (localDisk = \"storage\"),
  bindings = [
    (name = {namespace}, durableObjectNamespace = {class}),
{bindings}  ],
);
"
        )
    }
}

fn storage(dir: &ServerDir) -> PathBuf {
    dir.folder().join("storage")
}

fn file_name(module: usize) -> String {
    format!("module-{module}")
}

/// A text as a literal of the schema.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Starts the runtime with the settings in its folder.
fn serve(dir: &ServerDir, port: u16) -> Result<Process, Failure> {
    let before = listens(dir);
    let mut command = Command::new(programs::workerd());
    // It reports on standard output, which is the log, that it has bound its port.
    command.args(["serve", "--control-fd=1"]).arg(dir.settings_file());
    dir.start("workerd", &mut command, |_| {
        // Another server may have bound the port and respond.
        if listens(dir) == before {
            return Err("it does not listen".to_owned());
        }
        responds(ports::loopback(port)).map_err(|error| error.to_string())
    })
}

fn listens(dir: &ServerDir) -> usize {
    dir.log().matches(LISTENS).count()
}

/// Whether the Worker responds, with any status.
fn responds(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, ATTEMPT)?;
    stream.set_read_timeout(Some(super::deadline::TIMEOUT))?;
    write!(stream, "GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut start = [0; 5];
    stream.read_exact(&mut start)?;
    if &start == b"HTTP/" { Ok(()) } else { Err(io::Error::other("no HTTP response")) }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    /// Counts the requests of each object, in memory and in its storage.
    const COUNTER: &str = r#"
        import { DurableObject } from "cloudflare:workers";
        export class Counter extends DurableObject {
            fetch() {
                const kv = this.ctx.storage.kv;
                const count = (kv.get("count") ?? 0) + 1;
                kv.put("count", count);
                return new Response(`${this.env.GREETING} ${count}`);
            }
        }
        export default {
            fetch(request, env) {
                if (new URL(request.url).pathname === "/healthz") return new Response("ok");
                return env.COUNTER.get(env.COUNTER.idFromName("one")).fetch(request);
            },
        };"#;

    fn start() -> Workerd {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), COUNTER).unwrap();
        WorkerdBuilder::new()
            .module("worker.js", ModuleKind::EsModule, file.path())
            .objects("Counter", "COUNTER")
            .binding("GREETING", "say \"\\hi\"")
            .start()
    }

    /// The response to a request, without its head.
    fn get(server: &Workerd) -> String {
        let mut stream = BufReader::new(TcpStream::connect(server.address()).unwrap());
        write!(stream.get_mut(), "GET /count HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        // The runtime keeps the connection open for seconds, so the end must be found.
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let line = line.trim_end().to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }

    #[test]
    fn storage_survives_stop_and_kill() {
        let server = start();
        assert!(get(&server).contains("say \"\\hi\" 1"), "{}", server.log());
        server.stop();
        assert!(TcpStream::connect(server.address()).is_err());
        server.restart();
        assert!(get(&server).contains("say \"\\hi\" 2"));
        server.kill();
        server.restart();
        assert!(get(&server).contains("say \"\\hi\" 3"));
        assert!(fs::read_dir(server.storage()).unwrap().next().is_some());
    }

    #[test]
    #[should_panic(expected = "workerd did not start")]
    fn a_worker_without_modules_does_not_start() {
        let _ = WorkerdBuilder::new().start();
    }
}
