//! The sections `[modules.*]`, and the default file that contains it.

use tidegate_config::{Config, DEFAULT_FILE, Loader, Source, Warning, known_keys};

use crate::{config, error_lines};

/// Returns whether the module is enabled, requests per minute and burst.
fn rate_limit(config: &Config) -> (bool, u32, u32) {
    let rate_limit = &config.modules.rate_limit;
    let constraint = rate_limit.settings().unwrap_or_default().constraint().unwrap().unwrap();
    let requests = constraint.requests_per_minute().unwrap().get();
    (rate_limit.enabled.value, requests, u32::try_from(constraint.burst()).unwrap())
}

#[test]
fn empty_file_equals_default_file() {
    let (empty, mut default) = (config("").unwrap(), config(DEFAULT_FILE).unwrap());
    assert_eq!(rate_limit(&empty), (false, 60, 60));
    assert!(empty.modules.rate_limit.burst_capacity.value.is_some(), "the default file sets it");
    assert_eq!(empty.modules.rate_limit.enabled.source, Source::Default);
    assert_eq!(default.modules.rate_limit.burst_capacity.source, Source::File);
    // Only sources and warnings about unused keys differ.
    let shown = |config: &Config| format!("{config:?}").replace("source: File", "source: Default");
    let is_unused =
        |it: Warning| matches!(it, Warning::Unused { .. } | Warning::LibraryOnly { .. });
    assert!(default.warnings.drain(..).all(is_unused));
    assert_eq!(shown(&default), shown(&empty));
}

#[test]
fn default_file_has_every_key() {
    for key in known_keys().filter(|key| !key.path().contains('*') && key.path() != "state_dir") {
        let (section, name) = key.path().rsplit_once('.').unwrap();
        let section = DEFAULT_FILE.split("\n[").find(|text| text.starts_with(section)).unwrap();
        assert!(section.lines().any(|line| line.starts_with(&format!("{name} = "))), "{key:?}");
    }
}

#[test]
fn missing_burst_defaults_to_one_minute_of_requests() {
    for (text, expected) in [
        ("[modules.rate_limit]\nrequests_per_minute = 120\n", (false, 120, 120)),
        ("[modules.rate_limit]\nenabled = true\nburst_capacity = 5\n", (true, 60, 5)),
        ("[modules.rate_limit]\n", (false, 60, 60)),
        ("[modules]\n", (false, 60, 60)),
    ] {
        assert_eq!(rate_limit(&config(text).unwrap()), expected, "{text}");
    }
}

#[test]
fn variables_override_single_keys() {
    let with = |variables: &[(&str, &str)], text| {
        let variables = variables.iter().map(|(key, value)| {
            (format!("TIDEGATE_MODULES_RATE_LIMIT_{key}"), (*value).to_owned())
        });
        Loader::default().environment(variables).text("tidegate.toml", text).unwrap()
    };
    let faster = [("REQUESTS_PER_MINUTE", "120")];
    assert_eq!(rate_limit(&with(&faster, "")), (false, 120, 60), "the default file has a burst");
    let without_burst = "[modules.rate_limit]\nenabled = true\n";
    assert_eq!(rate_limit(&with(&faster, without_burst)), (true, 120, 120));
    let all = [("ENABLED", "true"), ("REQUESTS_PER_MINUTE", "7"), ("BURST_CAPACITY", "2")];
    let config = with(&all, without_burst);
    assert_eq!(rate_limit(&config), (true, 7, 2));
    assert_eq!(config.modules.rate_limit.burst_capacity.source, Source::Environment);
    let hints = with(&[("BURST", "5")], "").unknown_variables;
    assert_eq!(hints[0].suggestion, "TIDEGATE_MODULES_RATE_LIMIT_BURST_CAPACITY");
}

#[test]
fn errors_carry_their_position() {
    let text = r#"
[modules.rate_limit]
enabled = "yes"
requests_per_minute = 0
burst_capacity = 0
bursts = 1
[modules.ratelimit]
[modules.retries]
[modules.retry]
max_delay = "0s"
[modules.fallback]
enabled = true
[modules.cache]
"#;
    assert_eq!(
        error_lines(text),
        [
            "tidegate.toml:3:11: modules.rate_limit.enabled = \"yes\": must be true or false",
            "tidegate.toml:4:23: modules.rate_limit.requests_per_minute = 0: must be > 0",
            "tidegate.toml:5:18: modules.rate_limit.burst_capacity = 0: must be >= 1",
            "tidegate.toml:6:1: modules.rate_limit.bursts: is not a known key; did you mean \
             `burst_capacity`?",
            "tidegate.toml:7:10: modules.ratelimit: is not a known key; did you mean `rate_limit`?",
            "tidegate.toml:8:10: modules.retries: is not a known key; did you mean `retry`?",
            "tidegate.toml:10:13: modules.retry.max_delay = \"0s\": must be at least 1ms",
            "tidegate.toml:12:11: modules.fallback.enabled = true: needs providers to fall back to: \
             set chain; the fallback of a provider needs no `enabled`",
            "tidegate.toml:13:10: modules.cache: is not a known key; known keys are rate_limit, \
             retry, fallback",
        ]
    );
    for (value, expected) in [
        ("-10", "= -10: must be > 0"),
        ("0.5", "= 0.5: must be a whole number >= 1"),
        ("\"many\"", "= \"many\": must be a whole number >= 1"),
        ("4294967296", "= 4294967296: must be <= 4294967295"),
        ("1e30", "must be <= 4294967295"),
    ] {
        let lines = error_lines(&format!("[modules.rate_limit]\nrequests_per_minute = {value}\n"));
        assert!(lines.len() == 1 && lines[0].ends_with(expected), "{lines:?}");
    }
    assert_eq!(
        error_lines("modules = 5\n"),
        ["tidegate.toml:1:11: modules = 5: must be a table of keys and values"]
    );
}
