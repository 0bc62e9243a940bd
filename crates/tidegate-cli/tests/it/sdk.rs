//! The official Python clients through the gateway, each configured only by environment variables.
//!
//! The provider is a simulator on a socket. `sdk/calls.py` contains the calls; this file contains
//! the expected results.

use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Dialect, Limits, Output};

use crate::outbound::fixtures::{Gateway, Provider, Sdk};

/// The script that makes the calls.
const SCRIPT: &str = "sdk/calls.py";

/// Response text of thirteen tokens.
const TEXT: &str = "the sea ran out and the ebb was low but not yet the ";

/// Number of concurrent calls.
const BURST: usize = 20;

/// Requests per second that the provider admits.
const A_SECOND: u64 = 5;

/// An official client and its peculiarities.
#[derive(Clone, Copy)]
struct Client {
    sdk: Sdk,
    /// Tokens of the prompt. Ollama's client always adds an empty list of tools.
    input_tokens: u64,
    /// The exception that it raises for a rate limit.
    refusal: &'static str,
    /// Whether the exception contains the response headers.
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
fn openai_client_works_with_streams_and_bursts() {
    OPENAI.assert_talks();
}

#[test]
fn anthropic_client_works_with_streams_and_bursts() {
    ANTHROPIC.assert_talks();
}

#[test]
fn gemini_client_works_with_streams_and_bursts() {
    GEMINI.assert_talks();
}

#[test]
fn ollama_client_works_with_streams_and_bursts() {
    OLLAMA.assert_talks();
}

/// Setting: providers.*.requests_per_minute, providers.*.max_wait
#[test]
fn openai_raises_its_own_error_when_the_wait_is_too_long() {
    OPENAI.assert_rejected();
}

#[test]
fn anthropic_raises_its_own_error_when_the_wait_is_too_long() {
    ANTHROPIC.assert_rejected();
}

#[test]
fn gemini_raises_its_own_error_when_the_wait_is_too_long() {
    GEMINI.assert_rejected();
}

#[test]
fn ollama_raises_its_own_error_when_the_wait_is_too_long() {
    OLLAMA.assert_rejected();
}

impl Client {
    /// Checks that every call gets a complete response, and that a burst above the limit is spread
    /// out.
    fn assert_talks(self) {
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

    /// Checks that a second call is rejected, because it would wait longer than `max_wait`.
    fn assert_rejected(self) {
        let provider = self.provider();
        let limits = "requests_per_minute = 1\nburst_capacity = 1\nmax_wait = \"5s\"";
        let gateway = Gateway::start(self.sdk, &provider.url, limits);
        let told = gateway.run(SCRIPT, &["refused"]);
        for kind in ["whole", "streamed"] {
            let told = &told[kind];
            assert_eq!((&told["error"], &told["status"]), (&json!(self.refusal), &json!(429)));
            let took = told["seconds"].as_f64().unwrap();
            assert!(took < 5.0, "rejected immediately, not after {took} s");
            if self.keeps_headers {
                let number = |name: &str| -> u64 {
                    told["headers"][name].as_str().and_then(|text| text.parse().ok()).unwrap()
                };
                let (seconds, millis) = (number("retry-after"), number("retry-after-ms"));
                // One call per minute, minus the gateway's safety margin of 1.5 %.
                assert!((50..=61).contains(&seconds), "{told}");
                assert_eq!(millis.div_ceil(1_000), seconds, "{told}");
            }
        }
        assert_eq!(provider.simulator.ledger().seen(), 1, "no other call was sent");
    }

    fn provider(self) -> Provider {
        // Ollama has a queue instead of a rate limit.
        let limits = match self.sdk.dialect {
            Dialect::Ollama => Limits::new(),
            _ => Limits::new().requests_per_minute(A_SECOND * 60).slice(Duration::from_secs(1)),
        };
        Provider::start(self.sdk.account().any_model(limits).output(Output::fixed(13)))
    }
}
