//! What stands between the agents and the provider.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use tempfile::TempDir;

use super::scenario::{KEY, MODEL, Plan, REQUESTS, TOKENS};
use crate::server_process::Tidegate;

/// Checks for a peer that is starting, and the time between two of them.
const CHECKS: u32 = 600;
const BETWEEN_CHECKS: Duration = Duration::from_millis(250);

/// Programs that the benchmark was given.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Python with the packages of `requirements.txt`.
    pub(crate) python: PathBuf,
    pub(crate) tidegate: PathBuf,
    /// The entry file of Portkey's gateway, for Node.
    pub(crate) portkey: PathBuf,
}

/// A contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// The agents call the provider.
    Nothing,
    LiteLlm,
    /// LiteLLM with a bound on concurrent calls as well.
    LiteLlmBounded,
    Portkey,
    Ours,
    /// Without configured limits.
    OursLearning,
}

impl Contender {
    pub(super) const ALL: [Self; 6] = [
        Self::Nothing,
        Self::LiteLlm,
        Self::LiteLlmBounded,
        Self::Portkey,
        Self::Ours,
        Self::OursLearning,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing: the SDK's retries",
            Self::LiteLlm => "LiteLLM proxy: rpm, tpm, retries",
            Self::LiteLlmBounded => "LiteLLM proxy: and max_parallel_requests",
            Self::Portkey => "Portkey gateway: retries",
            Self::Ours => "Tidegate",
            Self::OursLearning => "Tidegate, no limits configured",
        }
    }

    /// Starts it in front of a provider.
    pub(super) fn start(self, programs: &Programs, provider: &str) -> Result<Running> {
        match self {
            Self::Nothing => Ok(Running::of(Process::None, format!("{provider}/v1"))),
            Self::LiteLlm => litellm(programs, provider, ""),
            // Ten calls a second of half a second each are five at once; more for the proxy's own time.
            Self::LiteLlmBounded => litellm(programs, provider, "      max_parallel_requests: 8\n"),
            Self::Portkey => portkey(programs, provider),
            Self::Ours => ours(
                programs,
                &format!(
                    "[providers.openai]\nbase_url = \"{provider}\"\n\
                     requests_per_minute = {REQUESTS}\ntokens_per_minute = {TOKENS}\n"
                ),
            ),
            Self::OursLearning => {
                ours(programs, &format!("[providers.openai]\nbase_url = \"{provider}\"\n"))
            }
        }
    }
}

/// A contender that accepts calls. It is stopped on drop.
#[derive(Debug)]
pub(super) struct Running {
    base_url: String,
    headers: Vec<(&'static str, String)>,
    /// The key of callers, if it is not that of the account.
    key: Option<String>,
    _process: Process,
}

#[derive(Debug)]
enum Process {
    None,
    Ours { _program: Tidegate },
    Peer { _peer: Peer },
}

impl Running {
    const fn of(process: Process, base_url: String) -> Self {
        Self { base_url, headers: Vec::new(), key: None, _process: process }
    }

    /// Completes a plan with the base URL, the headers and the key that this contender needs.
    pub(super) fn plan(&self, plan: impl FnOnce(String) -> Plan) -> Plan {
        let mut plan = plan(self.base_url.clone());
        plan.headers.extend(self.headers.iter().cloned());
        if let Some(key) = &self.key {
            plan.key.clone_from(key);
        }
        plan
    }
}

fn ours(programs: &Programs, settings: &str) -> Result<Running> {
    let program = Tidegate::start(&programs.tidegate, settings)?;
    let base_url = format!("http://{}/openai/v1", program.http);
    Ok(Running::of(Process::Ours { _program: program }, base_url))
}

/// One deployment with its limits, which the proxy enforces before a call, and retries.
fn litellm(programs: &Programs, provider: &str, more: &str) -> Result<Running> {
    let settings = format!(
        "model_list:\n  - model_name: {MODEL}\n    litellm_params:\n      model: openai/{MODEL}\n      \
         api_base: {provider}/v1\n      api_key: {KEY}\n      rpm: {REQUESTS}\n      tpm: {TOKENS}\n\
         {more}router_settings:\n  optional_pre_call_checks: [\"enforce_model_rate_limits\"]\n  \
         num_retries: 8\n  disable_cooldowns: true\n"
    );
    let folder = tempfile::Builder::new().prefix("tidegate-bench-").tempdir()?;
    fs::write(folder.path().join("config.yaml"), settings)?;
    let address = free_address()?;
    let program = programs.python.with_file_name("litellm");
    let mut command = Command::new(program);
    command.args(["--config", "config.yaml", "--host", "127.0.0.1", "--num_workers", "1"]);
    command.args(["--port", &address.port().to_string()]);
    // Otherwise it asks a server on the Internet for its table of prices.
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_LOG", "ERROR");
    // It does not start without a key that cannot be guessed, not even on loopback.
    let key = random_key()?;
    command.env("LITELLM_MASTER_KEY", &key);
    let peer = Peer::start(command, folder, address)?;
    let running = Running::of(Process::Peer { _peer: peer }, format!("http://{address}/v1"));
    Ok(Running { key: Some(key), ..running })
}

/// A key that cannot be guessed.
fn random_key() -> Result<String> {
    let mut bytes = [0; 24];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold("sk-".to_owned(), |key, byte| format!("{key}{byte:02x}")))
}

/// Retries with all attempts that it has, which wait as the provider asks.
fn portkey(programs: &Programs, provider: &str) -> Result<Running> {
    let folder = tempfile::Builder::new().prefix("tidegate-bench-").tempdir()?;
    let address = free_address()?;
    let mut command = Command::new("node");
    command.arg(&programs.portkey).args(["--headless", &format!("--port={}", address.port())]);
    let peer = Peer::start(command, folder, address)?;
    let config = json!({
        "provider": "openai",
        "api_key": KEY,
        "custom_host": format!("{provider}/v1"),
        "retry": {"attempts": 5, "use_retry_after_header": true},
    });
    let mut running = Running::of(Process::Peer { _peer: peer }, format!("http://{address}/v1"));
    running.headers.push(("x-portkey-config", config.to_string()));
    Ok(running)
}

/// Another gateway in a process of its own. It is stopped on drop.
#[derive(Debug)]
struct Peer {
    child: Child,
    _folder: TempDir,
}

impl Peer {
    /// Starts it and waits until it accepts connections.
    fn start(mut command: Command, folder: TempDir, address: SocketAddr) -> Result<Self> {
        let log = folder.path().join("log");
        command.current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(File::create(&log)?).stderr(File::options().append(true).open(&log)?);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut peer = Self { child, _folder: folder };
        for _ in 0..CHECKS {
            if TcpStream::connect(address).is_ok() {
                return Ok(peer);
            }
            if let Some(status) = peer.child.try_wait()? {
                bail!("{command:?} ended with {status}: {}", last_lines(&log));
            }
            thread::park_timeout(BETWEEN_CHECKS);
        }
        bail!("{command:?} does not listen on {address}: {}", last_lines(&log))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that is free now. The peers cannot say which port they chose themselves.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join("\n")
}
