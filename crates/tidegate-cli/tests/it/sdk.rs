//! The official Python clients through the gateway, each set up by its environment alone.
//!
//! The provider is the simulator, on a socket of its own. What a client does stands in
//! `sdk/calls.py`; what it must come to stands here.

use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Dialect, Limits, Output};

use crate::outbound::stage::{Gateway, Provider, Sdk};

/// What the clients do.
const SCRIPT: &str = "sdk/calls.py";

/// Thirteen tokens of the simulator.
const TEXT: &str = "the sea ran out and the ebb was low but not yet the ";

/// Calls at the same time.
const BURST: usize = 20;

/// What a provider lets in, of requests in a second.
const A_SECOND: u64 = 5;

/// One official client, and what is its own.
#[derive(Clone, Copy)]
struct Client {
    sdk: Sdk,
    /// Tokens of the question. Ollama's client always adds an empty list of tools.
    input_tokens: u64,
    /// The error that it raises for a limit of rate.
    refusal: &'static str,
    /// Whether its error keeps the headers of the answer.
    keeps_headers: bool,
}

const OPENAI: Client =
    Client { sdk: Sdk::OPENAI, input_tokens: 4, refusal: "RateLimitError", keeps_headers: true };

const ANTHROPIC: Client =
    Client { sdk: Sdk::ANTHROPIC, input_tokens: 4, refusal: "RateLimitError", keeps_headers: true };

const GEMINI: Client =
    Client { sdk: Sdk::GEMINI, input_tokens: 4, refusal: "ClientError", keeps_headers: true };

const OLLAMA: Client =
    Client { sdk: Sdk::OLLAMA, input_tokens: 5, refusal: "ResponseError", keeps_headers: false };

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

/// Setting: providers.*.requests_per_minute, providers.*.max_wait
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
        let provider = self.provider();
        let limits = format!("requests_per_minute = {}\nburst_capacity = 1", A_SECOND * 60);
        let gateway = Gateway::start(self.sdk, &provider.url, &limits);
        let told = gateway.run(SCRIPT, &["talk", &BURST.to_string()]);
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
        let provider = self.provider();
        let limits = "requests_per_minute = 1\nburst_capacity = 1\nmax_wait = \"5s\"";
        let gateway = Gateway::start(self.sdk, &provider.url, limits);
        let told = gateway.run(SCRIPT, &["refused"]);
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

    fn provider(self) -> Provider {
        // What Ollama has in place of a limit is a queue.
        let limits = match self.sdk.dialect {
            Dialect::Ollama => Limits::new(),
            _ => Limits::new().requests_per_minute(A_SECOND * 60).slice(Duration::from_secs(1)),
        };
        Provider::start(self.sdk.account().any_model(limits).output(Output::fixed(13)))
    }
}
