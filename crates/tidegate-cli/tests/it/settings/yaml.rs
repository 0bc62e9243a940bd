//! The file of a source document, in YAML, through the whole program (R125).

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::json;
use tidegate_sim::Limits;
use tokio::time::Instant;

use crate::outbound::fixtures::{KEY, Provider, Sdk};
use crate::program::{Serving, serve};

/// As it stands there.
const SEED: &str = "\
# config.yaml
gemini:
  model: gemini-2.0-flash
  tier: tier_2
  rate_limits:
    requests_per_minute: 1000  # Override default
    tokens_per_minute: 4000000
    min_interval_ms: 100  # Space out requests
";

/// Concurrent calls. The last one starts nine intervals after the first.
const CALLS: u32 = 10;

#[test]
fn program_serves_the_file_of_the_source_document() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("config.yaml"), SEED).unwrap();
    let provider = Provider::start(Sdk::GEMINI.account().any_model(Limits::new()));
    let mut command = serve(here.path(), &["--config", "config.yaml"]);
    command.env("TIDEGATE_PROVIDERS_GEMINI_BASE_URL", &provider.url);
    let serving = Serving::start(&mut command);
    for (key, value) in [
        ("tier", json!("tier_2")),
        ("requests_per_minute", json!(1_000)),
        ("tokens_per_minute", json!(4_000_000)),
        ("min_interval_ms", json!(100)),
    ] {
        let shown = serving.setting(&format!("providers.gemini.{key}"));
        assert_eq!(shown, (value, "file".to_owned()), "{key}");
    }

    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let url = format!("{}/gemini/v1beta/models/gemini-2.0-flash:generateContent", serving.url);
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "A river?"}]}]}).to_string();
    let call = || {
        let request = agent.post(&url).header("x-goog-api-key", KEY);
        request.header("content-type", "application/json").send(&body).unwrap().status().as_u16()
    };
    let start = Instant::now();
    let statuses: Vec<_> = thread::scope(|scope| {
        let calls: Vec<_> = (0..CALLS).map(|_| scope.spawn(call)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(statuses, [200; CALLS as usize]);
    let least = Duration::from_millis(100) * (CALLS - 1);
    assert!(start.elapsed() >= least, "{:?}: the starts are 100 ms apart", start.elapsed());
}
