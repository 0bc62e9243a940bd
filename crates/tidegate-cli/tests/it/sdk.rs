//! The official Python clients through the gateway, each set up by its environment alone.
//!
//! The provider is the simulator, on a socket of its own. What a client does stands in
//! `sdk/calls.py`; what it must come to stands here.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_sim::{Account, Dialect, Limits, Output, Simulator};
use tidegate_testkit::launch::Python;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::program::{Serving, tidegate};

const KEY: &str = "key-of-the-caller";

/// Thirteen tokens of the simulator.
const TEXT: &str = "the sea ran out and the ebb was low but not yet the ";

/// Calls at the same time.
const BURST: usize = 20;

/// What a provider lets in, of requests in a second.
const A_SECOND: u64 = 5;

/// One official client and how it is told where its provider is.
#[derive(Clone, Copy)]
struct Client {
    /// Its name in the script, and its provider's in the gateway.
    name: &'static str,
    dialect: Dialect,
    /// Where it reads the address of its provider, and what belongs behind that of the gateway.
    address: (&'static str, &'static str),
    /// Where it reads its key. Of Ollama there is none.
    key: Option<&'static str>,
    /// Tokens of the question. Ollama's client always adds an empty list of tools.
    input_tokens: u64,
    /// The error that it raises for a limit of rate.
    refusal: &'static str,
    /// Whether its error keeps the headers of the answer.
    keeps_headers: bool,
}

const OPENAI: Client = Client {
    name: "openai",
    dialect: Dialect::OpenAi,
    address: ("OPENAI_BASE_URL", "/openai/v1"),
    key: Some("OPENAI_API_KEY"),
    input_tokens: 4,
    refusal: "RateLimitError",
    keeps_headers: true,
};

const ANTHROPIC: Client = Client {
    name: "anthropic",
    dialect: Dialect::Anthropic,
    address: ("ANTHROPIC_BASE_URL", "/anthropic"),
    key: Some("ANTHROPIC_API_KEY"),
    input_tokens: 4,
    refusal: "RateLimitError",
    keeps_headers: true,
};

const GEMINI: Client = Client {
    name: "gemini",
    dialect: Dialect::Gemini,
    address: ("GOOGLE_GEMINI_BASE_URL", "/gemini"),
    key: Some("GEMINI_API_KEY"),
    input_tokens: 4,
    refusal: "ClientError",
    keeps_headers: true,
};

const OLLAMA: Client = Client {
    name: "ollama",
    dialect: Dialect::Ollama,
    address: ("OLLAMA_HOST", "/ollama"),
    key: None,
    input_tokens: 5,
    refusal: "ResponseError",
    keeps_headers: false,
};

#[test]
fn openai_talks_streams_and_bursts() {
    OPENAI.talks();
}

#[test]
fn anthropic_talks_streams_and_bursts() {
    ANTHROPIC.talks();
}

#[test]
fn gemini_talks_streams_and_bursts() {
    GEMINI.talks();
}

#[test]
fn ollama_talks_streams_and_bursts() {
    OLLAMA.talks();
}

#[test]
fn openai_raises_its_own_error_when_the_wait_is_too_long() {
    OPENAI.is_refused();
}

#[test]
fn anthropic_raises_its_own_error_when_the_wait_is_too_long() {
    ANTHROPIC.is_refused();
}

#[test]
fn gemini_raises_its_own_error_when_the_wait_is_too_long() {
    GEMINI.is_refused();
}

#[test]
fn ollama_raises_its_own_error_when_the_wait_is_too_long() {
    OLLAMA.is_refused();
}

impl Client {
    /// Every call is answered in full, and a burst that the provider would not let in is spread.
    fn talks(self) {
        let provider = Provider::start(self);
        let limits = format!("requests_per_minute = {}\nburst_capacity = 1", A_SECOND * 60);
        let gateway = Gateway::start(self, &provider, &limits);
        let told = gateway.run(&["talk", &BURST.to_string()]);
        let whole = json!({ "text": TEXT, "input_tokens": self.input_tokens, "output_tokens": 13 });
        assert_eq!((&told["whole"], &told["streamed"]), (&whole, &whole));
        let burst = told["burst"].as_array().unwrap();
        assert_eq!(burst.len(), BURST);
        assert!(burst.iter().all(|answer| *answer == whole), "{burst:?}");
        let entries = provider.simulator.ledger().entries();
        let spread = entries.last().unwrap().at - entries[0].at;
        let seconds = Duration::from_secs(BURST as u64 / A_SECOND - 1);
        assert!(spread >= seconds, "{BURST} calls within {spread:?}");
    }

    /// The second call would wait for a minute, which is more than the gateway lets anybody wait.
    fn is_refused(self) {
        let provider = Provider::start(self);
        let limits = "requests_per_minute = 1\nburst_capacity = 1\nmax_wait = \"5s\"";
        let gateway = Gateway::start(self, &provider, limits);
        let told = gateway.run(&["refused"]);
        for kind in ["whole", "streamed"] {
            let told = &told[kind];
            assert_eq!((&told["error"], &told["status"]), (&json!(self.refusal), &json!(429)));
            let took = told["seconds"].as_f64().unwrap();
            assert!(took < 5.0, "refused at once, and not after {took} s");
            if self.keeps_headers {
                let number = |name: &str| -> u64 {
                    told["headers"][name].as_str().and_then(|text| text.parse().ok()).unwrap()
                };
                let (seconds, millis) = (number("retry-after"), number("retry-after-ms"));
                // A call a minute, less the 1.5 % that the gateway leaves to the provider.
                assert!((50..=61).contains(&seconds), "{told}");
                assert_eq!(millis.div_ceil(1_000), seconds, "{told}");
            }
        }
        assert_eq!(provider.simulator.ledger().seen(), 1, "no other call has left the gateway");
    }
}

/// A provider on a socket. It ends with its runtime.
struct Provider {
    simulator: Simulator,
    url: String,
    _runtime: Runtime,
}

impl Provider {
    fn start(client: Client) -> Self {
        let runtime = Runtime::new().unwrap();
        // What Ollama has in place of a limit is a queue.
        let limits = match client.dialect {
            Dialect::Ollama => Limits::new(),
            _ => Limits::new().requests_per_minute(A_SECOND * 60).slice(Duration::from_secs(1)),
        };
        let account = Account::new(client.dialect, client.name, KEY)
            .any_model(limits)
            .output(Output::fixed(13));
        let (simulator, url) = runtime.block_on(async {
            let simulator = Simulator::builder().account(account).build().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let server = simulator.clone();
            tokio::spawn(async move { server.serve(listener).await });
            (simulator, url)
        });
        Self { simulator, url, _runtime: runtime }
    }
}

/// The program in front of a provider, for one client.
struct Gateway {
    client: Client,
    serving: Serving,
    _folder: TempDir,
}

impl Gateway {
    fn start(client: Client, provider: &Provider, limits: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (name, url) = (client.name, &provider.url);
        let text = format!("[providers.{name}]\nbase_url = \"{url}\"\n{limits}\n");
        fs::write(folder.path().join("tidegate.toml"), text).unwrap();
        let free = "127.0.0.1:0";
        let mut args = vec!["serve", "--config", "tidegate.toml", "--database", "none"];
        args.extend(["--http", "--admin", "--grpc", "--resp"].iter().flat_map(|door| [door, free]));
        let serving = Serving::start(&mut tidegate(folder.path(), &args));
        Self { client, serving, _folder: folder }
    }

    /// Runs the script with this client, which is told the address and a key and no more.
    fn run(&self, story: &[&str]) -> Value {
        let (variable, path) = self.client.address;
        let address = format!("{}{path}", self.serving.url);
        let mut env = vec![(variable, address.as_str())];
        env.extend(self.client.key.map(|variable| (variable, KEY)));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/sdk/calls.py");
        let ran = Python::installed().run(script, &[&[self.client.name], story].concat(), &env);
        serde_json::from_str(ran.line()).unwrap()
    }
}
