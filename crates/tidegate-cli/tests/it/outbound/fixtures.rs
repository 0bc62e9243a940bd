//! Test fixtures: a simulated provider on a socket, and the program in front of it.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_sim::{Account, Dialect, Simulator};
use tidegate_testkit::launch::Python;
use tokio::runtime::Runtime;

use crate::program::{Ended, Serving, tidegate};

/// The API key of all callers.
pub(crate) const KEY: &str = "key-of-the-caller";

/// An official Python client and its configuration.
#[derive(Clone, Copy)]
pub(crate) struct Sdk {
    /// Name of the client in the scripts, and of its provider in the gateway.
    pub(crate) name: &'static str,
    pub(crate) dialect: Dialect,
    /// Variable of the base URL, and the path to append to the URL of the gateway.
    pub(crate) address: (&'static str, &'static str),
    /// Variable of the API key. Ollama has none.
    pub(crate) key: Option<&'static str>,
}

impl Sdk {
    pub(crate) const OPENAI: Self = Self {
        name: "openai",
        dialect: Dialect::OpenAi,
        address: ("OPENAI_BASE_URL", "/openai/v1"),
        key: Some("OPENAI_API_KEY"),
    };

    pub(crate) const ANTHROPIC: Self = Self {
        name: "anthropic",
        dialect: Dialect::Anthropic,
        address: ("ANTHROPIC_BASE_URL", "/anthropic"),
        key: Some("ANTHROPIC_API_KEY"),
    };

    pub(crate) const GEMINI: Self = Self {
        name: "gemini",
        dialect: Dialect::Gemini,
        address: ("GOOGLE_GEMINI_BASE_URL", "/gemini"),
        key: Some("GEMINI_API_KEY"),
    };

    pub(crate) const OLLAMA: Self = Self {
        name: "ollama",
        dialect: Dialect::Ollama,
        address: ("OLLAMA_HOST", "/ollama"),
        key: None,
    };

    /// Returns the account of this client's callers at its provider.
    pub(crate) fn account(self) -> Account {
        Account::new(self.dialect, self.name, KEY)
    }
}

/// A simulated provider on a socket. It ends with its runtime.
pub(crate) struct Provider {
    pub(crate) simulator: Simulator,
    pub(crate) url: String,
    _runtime: Runtime,
}

impl Provider {
    pub(crate) fn start(account: Account) -> Self {
        let runtime = Runtime::new().unwrap();
        let (simulator, url) = runtime.block_on(async {
            let simulator = Simulator::builder().account(account).build().unwrap();
            let url = simulator.serve_on_loopback().await.unwrap();
            (simulator, url)
        });
        Self { simulator, url, _runtime: runtime }
    }
}

/// A running program in front of one provider.
pub(crate) struct Gateway {
    sdk: Sdk,
    serving: Serving,
    folder: TempDir,
}

impl Gateway {
    /// Starts the program with a provider of this client's dialect at `base_url`. `settings` are
    /// additional lines of `[providers.NAME]`.
    pub(crate) fn start(sdk: Sdk, base_url: &str, settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("[providers.{}]\nbase_url = \"{base_url}\"\n{settings}\n", sdk.name);
        fs::write(folder.path().join("tidegate.toml"), text).unwrap();
        let free = "127.0.0.1:0";
        let mut args = vec!["serve", "--config", "tidegate.toml", "--database", "none"];
        args.extend(["--http", "--admin", "--grpc", "--resp"].iter().flat_map(|door| [door, free]));
        let serving = Serving::start(&mut tidegate(folder.path(), &args));
        Self { sdk, serving, folder }
    }

    /// Replaces the settings and waits until they are applied.
    pub(crate) fn reload(&mut self, base_url: &str, settings: &str) {
        let text =
            format!("[providers.{}]\nbase_url = \"{base_url}\"\n{settings}\n", self.sdk.name);
        fs::write(self.folder.path().join("tidegate.toml"), text).unwrap();
        self.serving.signal("HUP");
        self.serving.wait_for("door=\"signal\"");
    }

    /// Returns the sum of all series of a metric whose labels contain all of `labels`.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let (status, text) = self.serving.ask("/metrics");
        assert_eq!(status, 200, "{text}");
        let series = text.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
        let wanted = series.filter(|(found, _)| {
            (found.is_empty() || found.starts_with('{'))
                && labels.iter().all(|one| found.contains(one))
        });
        wanted.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }

    /// Returns the base URL for the client.
    pub(crate) fn base_url(&self) -> String {
        format!("{}{}", self.serving.url, self.sdk.address.1)
    }

    /// Runs a script with the client, whose base URL and key are set in the environment, and
    /// returns the JSON that it prints.
    pub(crate) fn run(&self, script: &str, args: &[&str]) -> Value {
        let address = self.base_url();
        let mut env = vec![(self.sdk.address.0, address.as_str())];
        env.extend(self.sdk.key.map(|variable| (variable, KEY)));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(script);
        let ran = Python::installed().run(script, &[&[self.sdk.name], args].concat(), &env);
        serde_json::from_str(ran.line()).unwrap()
    }

    /// Sends a GET request to the admin API.
    pub(crate) fn ask(&self, path: &str) -> (u16, String) {
        self.serving.ask(path)
    }

    /// Stops the program. Its log is on standard error.
    pub(crate) fn stop(self) -> Ended {
        self.serving.stop("TERM")
    }
}
