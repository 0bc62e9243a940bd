//! Configuration files in YAML.

use std::fs;
use std::time::Duration;

use tidegate_config::{Config, ConfigError, Loader, Source};

/// The configuration of the source document (R125), as it stands.
pub(crate) const SEED: &str = "\
# config.yaml
gemini:
  model: gemini-2.0-flash
  tier: tier_2
  rate_limits:
    requests_per_minute: 1000  # Override default
    tokens_per_minute: 4000000
    min_interval_ms: 100  # Space out requests
";

fn yaml(text: &str) -> Result<Config, ConfigError> {
    Loader::default().text("config.yaml", text)
}

fn error_lines(text: &str) -> Vec<String> {
    yaml(text).unwrap_err().to_string().lines().map(ToOwned::to_owned).collect()
}

/// R125.
#[test]
fn provider_at_the_top_level_is_configured() {
    let here = tempfile::tempdir().unwrap();
    for name in ["config.yaml", "config.YML"] {
        let file = here.path().join(name);
        fs::write(&file, SEED).unwrap();
        let config = Loader::default().file(&file).load().unwrap();
        let gemini = &config.providers["gemini"];
        assert_eq!(gemini.model.value.as_deref(), Some("gemini-2.0-flash"));
        assert_eq!(gemini.tier.value.as_deref(), Some("tier_2"));
        let limits = gemini.constraint().unwrap();
        assert_eq!(limits.requests_per_minute().unwrap().get(), 1_000);
        assert_eq!(limits.tokens_per_minute().unwrap().get(), 4_000_000);
        assert_eq!(limits.min_interval(), Duration::from_millis(100));
        assert_eq!(gemini.limits.min_interval.source, Source::File);
        let in_tier = gemini.tier_limits().any(|(model, _)| model == "gemini-2.0-flash");
        assert!(!in_tier, "the limits replace those of the tier");
    }
}

#[test]
fn all_errors_are_reported_with_their_positions() {
    let text = "\
listen:
  http: 8080
providers:
  openai:
    max_retry: 3
gemini:
  tier: gold
  rate_limits:
    requests_per_minute: 0
    tokens_per_minute: many
  tiers: 9
";
    assert_eq!(
        error_lines(text),
        [
            "config.yaml:2:9: listen.http = 8080: must be an address and a port, such as \
             127.0.0.1:8080; port 0 picks a free one",
            "config.yaml:5:5: providers.openai.max_retry: is not a known key; did you mean \
             `max_retries`?",
            "config.yaml:7:9: providers.gemini.tier = \"gold\": is not a tier of gemini; known \
             tiers are free, tier_1, tier_2, tier_3",
            "config.yaml:9:26: providers.gemini.requests_per_minute = 0: must be > 0",
            "config.yaml:10:24: providers.gemini.tokens_per_minute = \"many\": must be a whole \
             number >= 1",
            "config.yaml:11:3: providers.gemini.tiers: is not a known key; did you mean `tier`?",
        ]
    );
}

#[test]
fn sections_are_those_of_a_toml_file() {
    let text = "\
limits:
  client: { capacity: 5, rate: 1/s }
admission:
  allow_clients: [acme/nightly-export]
providers:
  gemini: { max_wait: 5s }
openai: { tier: tier_1 }
";
    let config = yaml(text).unwrap();
    assert_eq!(config.limits.by_name.len(), 1);
    assert_eq!(config.admission.allow_clients.value.len(), 1);
    assert_eq!(config.providers["gemini"].max_wait.value, Duration::from_secs(5));
    assert!(config.providers["openai"].tier_limits().next().is_some());
}

#[test]
fn key_that_is_given_twice_is_an_error() {
    for (text, line) in [
        ("gemini: {}\ngemini: {}\n", "config.yaml:2:1: providers.gemini: is given twice"),
        (
            "gemini: {}\nproviders: { gemini: {} }\n",
            "config.yaml:1:1: providers.gemini: is given twice",
        ),
        ("api: {}\napi: {}\n", "config.yaml:2:1: api: is given twice"),
        (
            "openai: { max_wait: 5s, max_wait: 6s }\n",
            "config.yaml:1:25: providers.openai.max_wait: is given twice",
        ),
        (
            "openai:\n  tokens_per_minute: 5\n  rate_limits: { tokens_per_minute: 6 }\n",
            "config.yaml:3:18: providers.openai.tokens_per_minute: is given twice",
        ),
    ] {
        assert!(error_lines(text).contains(&line.to_owned()), "{:?}", error_lines(text));
    }
    let syntax = error_lines("limits: [\n");
    assert!(syntax.last().unwrap().starts_with("config.yaml:2:1: "), "{syntax:?}");
}
