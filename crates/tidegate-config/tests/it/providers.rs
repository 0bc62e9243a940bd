//! Providers: keys, variables, and handling of invalid numbers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use tidegate::pacer::{PoolSize, Tuning};
use tidegate_config::{Config, Loader, Overrides, Patch, Source};
use tidegate_llm::plan::Constraint;
use tidegate_providers::Dialect;

use crate::{config, error_lines, variables, warnings};

#[test]
fn four_providers_are_available_without_a_file() {
    let config = config("").unwrap();
    let shown: Vec<_> = config
        .providers
        .iter()
        .map(|(name, it)| {
            (
                name.as_str(),
                it.base_url.value.as_str(),
                it.max_concurrent_requests.value.get(),
                it.max_retries.value,
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("anthropic", "https://api.anthropic.com", 4, 8),
            ("gemini", "https://generativelanguage.googleapis.com", 1, 8),
            ("ollama", "http://127.0.0.1:11434", 1, 3),
            ("openai", "https://api.openai.com", 8, 8),
        ]
    );
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    assert!(
        config.providers.values().all(|it| it.constraint().is_none()),
        "all limits are learned"
    );
    assert_eq!(format!("{:?}", config.providers), format!("{:?}", Config::default().providers));
}

#[test]
fn timeouts_have_defaults_and_come_from_every_layer() {
    let seconds = |config: &Config| {
        let openai = &config.providers["openai"];
        let all = [
            &openai.max_wait,
            &openai.connect_timeout,
            &openai.first_byte_timeout,
            &openai.idle_timeout,
        ];
        all.map(|setting| setting.value.as_secs())
    };
    assert_eq!(seconds(&config("").unwrap()), [120, 10, 120, 60]);
    let text = "[providers.openai]\nconnect_timeout = \"1s\"\nfirst_byte_timeout = \"2s\"\n";
    let environment = || variables(&[("TIDEGATE_PROVIDERS_OPENAI_FIRST_BYTE_TIMEOUT", "3s")]);
    let load = || Loader::default().environment(environment());
    let found = load().text("tidegate.toml", text).unwrap();
    assert_eq!(seconds(&found), [120, 1, 3, 60]);
    assert_eq!(found.providers["openai"].idle_timeout.source, Source::Default);
    let stored = Patch::default().set("providers.openai.idle_timeout", "4s");
    let layers = load().text_layers("tidegate.toml", text);
    let layers = layers.with_overrides(stored.apply(&Overrides::new()));
    assert_eq!(seconds(&layers.validate().unwrap()), [120, 1, 3, 4]);
    let shown =
        |key: &str| layers.effective().iter().find(|it| it.key == key).unwrap().value.clone();
    assert_eq!(shown("providers.openai.idle_timeout"), "\"4s\"");
    assert_eq!(shown("providers.openai.first_byte_timeout"), "\"3s\"");
}

/// R346, R349, R397: the defaults that are shown are those in use.
#[test]
fn retries_breakers_and_ramps_have_defaults_and_are_read() {
    let layers = Loader::default().text_layers("tidegate.toml", "");
    let shown = |layers: &tidegate_config::Layers, key: &str| {
        let key = format!("providers.{key}");
        layers.effective().iter().find(|it| it.key == key).map(|it| it.value.clone())
    };
    for (key, value) in [
        ("openai.retry_statuses", "[429,500,503]"),
        ("anthropic.retry_statuses", "[429,500,529]"),
        ("ollama.retry_statuses", "[429,500,502]"),
        ("openai.breaker", "true"),
        ("openai.breaker_failures", "10"),
        ("openai.breaker_open_for", "\"5s\""),
    ] {
        assert_eq!(shown(&layers, key).as_deref(), Some(value), "{key}");
    }
    assert!(!layers.validate().unwrap().providers["openai"].ramp.is_on());
    let text = "[providers.openai]\nbreaker = false\nbreaker_failures = 3\nbreaker_open_for = \
                \"2m\"\nramp_up = \"90s\"\n";
    let environment = variables(&[
        ("TIDEGATE_PROVIDERS_OPENAI_RETRY_STATUSES", "429, 502"),
        ("TIDEGATE_PROVIDERS_OPENAI_RAMP_FLOOR", "120"),
    ]);
    let layers = Loader::default().environment(environment).text_layers("tidegate.toml", text);
    let config = layers.validate().unwrap();
    let openai = &config.providers["openai"];
    assert_eq!(openai.retry_statuses.value, [429, 502]);
    assert!(!openai.breaker.enabled.value);
    assert_eq!(openai.breaker.failures.value.get(), 3);
    assert_eq!(openai.breaker.open_for.value, Duration::from_secs(120));
    assert_eq!(openai.ramp.over.value, Duration::from_secs(90));
    assert_eq!(openai.ramp.floor.value.get(), 120);
    assert_eq!(shown(&layers, "openai.breaker_open_for").unwrap(), "\"2m\"");
    assert_eq!(shown(&layers, "openai.retry_statuses").unwrap(), "[429,502]");
    let lines = error_lines(
        "[providers.openai]\nramp_floor = 5\nbreaker_failures = 0\nbreaker_open_for = \"0s\"\n",
    );
    for (line, rule) in lines.iter().zip([
        "ramp_floor = 5: requires ramp_up, which is not set",
        "breaker_failures = 0: must be a whole number between 1 and 1000",
        "breaker_open_for = \"0s\": must be at least 1ms",
    ]) {
        assert!(line.contains(rule), "{line}");
    }
    assert_eq!(lines.len(), 3, "{lines:#?}");
}

#[test]
fn all_keys_of_a_provider_are_read() {
    let text = r#"
[providers.house]
base_url = "https://llm.internal/openai/"
api_key_env = "HOUSE_KEY"
dialect = "openai"
requests_per_minute = 600
tokens_per_minute = 90_000
requests_per_day = 10_000
requests_per_day_zone = "America/Los_Angeles"
min_interval_ms = 5
max_concurrent_requests = 120
max_retries = 0
retry_base = "250ms"
max_wait = "3m"
connect_timeout = "2s"
first_byte_timeout = "4m"
idle_timeout = "45s"
fallback = ["openai"]
models = ["small", "large"]
[providers.house.endpoints.embeddings]
max_concurrent_requests = 16
requests_per_minute = 6000
"#;
    let loader = || Loader::default().environment(variables(&[("HOUSE_KEY", "sk-hunter2")]));
    let config = loader().text("tidegate.toml", text).unwrap();
    let house = &config.providers["house"];
    assert_eq!(house.base_url.value, "https://llm.internal/openai");
    assert_eq!(house.dialect(), Dialect::OpenAi);
    assert_eq!(house.credential().unwrap().reveal(), Some("sk-hunter2"));
    assert!(!format!("{config:?} {:?}", loader()).contains("hunter2"));
    assert_eq!(house.max_concurrent_requests.value.get(), 120, "above the cap, as written");
    assert_eq!(house.max_retries.value, 0);
    assert_eq!(house.retry_base.value, Duration::from_millis(250));
    assert_eq!(house.max_wait.value, Duration::from_secs(180));
    assert_eq!(house.connect_timeout.value, Duration::from_secs(2));
    assert_eq!(house.first_byte_timeout.value, Duration::from_secs(240));
    assert_eq!(house.idle_timeout.value, Duration::from_secs(45));
    assert_eq!(house.fallback.value, ["openai"]);
    let constraint = house.constraint().unwrap();
    assert_eq!(constraint.burst(), 10, "one second's worth");
    assert_eq!(constraint.requests_per_day_zone().unwrap(), "America/Los_Angeles");
    assert_eq!(constraint.concurrency(), None, "concurrency is not part of it");
    let embeddings = house.endpoints["embeddings"].constraint().unwrap();
    assert_eq!(embeddings.concurrency().unwrap().get(), 16);
    assert_eq!(config.warnings, []);
}

#[test]
fn errors_are_reported_with_positions() {
    let text = r#"
[providers.v1]
base_url = "https://a"
[providers.House]
base_url = "https://user:hunter2@a"
[providers.vllm]
max_retry = 3
[providers.openai]
api_key_env = "sk-hunter2"
dialect = "open-ai"
max_concurrent_requests = 0
max_retries = 21
retry_base = "1"
max_wait = 50
idle_timeout = "0s"
burst_factor = 0.5
tokens_per_minute = 5
input_tokens_per_minute = 5
fallback = ["antropic"]
[providers.anthropic]
fallback = ["anthropic"]
requests_per_minute = 0
[providers.anthropic.endpoints.Chat]
requests = 5
"#;
    let lines = error_lines(text);
    let expected = [
        "tidegate.toml:2:1: providers.v1: is reserved for a path of the API itself",
        "tidegate.toml:4:1: providers.House: is not a valid name: use a lower-case letter",
        "tidegate.toml:5:12: providers.House.base_url: must be http:// or https:// and a host",
        "tidegate.toml:6:1: providers.vllm.base_url: is required: this dialect has no default base \
         URL",
        "tidegate.toml:7:1: providers.vllm.max_retry: is not a known key; did you mean \
         `max_retries`?",
        "tidegate.toml:9:15: providers.openai.api_key_env: must be the name of an environment",
        "tidegate.toml:10:11: providers.openai.dialect = \"open-ai\": must be one of openai, azure",
        "tidegate.toml:11:27: providers.openai.max_concurrent_requests = 0: must be a whole number \
         >= 1",
        "tidegate.toml:12:15: providers.openai.max_retries = 21: must be a whole number between 0 \
         and 20",
        "tidegate.toml:13:14: providers.openai.retry_base = \"1\": must be a whole number and a \
         unit",
        "tidegate.toml:14:12: providers.openai.max_wait = 50: must be a whole number and a unit",
        "tidegate.toml:15:16: providers.openai.idle_timeout = \"0s\": must be at least 1ms",
        "tidegate.toml:16:16: providers.openai.burst_factor = 0.5: must be a number from 1.0",
        "tidegate.toml:17:21: providers.openai.tokens_per_minute = 5: is the total",
        "tidegate.toml:19:12: providers.openai.fallback = [...]: \"antropic\" is not a configured \
         provider; did you mean `anthropic`?",
        "tidegate.toml:21:12: providers.anthropic.fallback = [...]: must not name the provider \
         itself",
        "tidegate.toml:22:23: providers.anthropic.requests_per_minute = 0: must be > 0",
        "tidegate.toml:23:1: providers.anthropic.endpoints.Chat: is not a valid name",
        "tidegate.toml:24:1: providers.anthropic.endpoints.Chat.requests: is not a known key",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n{expected}");
        assert!(!line.contains("hunter2"));
    }
}

#[test]
fn unset_api_key_variable_causes_a_warning() {
    let text = "[providers.openai]\napi_key_env = \"OPENAI_API_KEY\"\n";
    let with = |pairs: &[(&str, &str)]| {
        Loader::default().environment(variables(pairs)).text_layers("tidegate.toml", text)
    };
    assert!(warnings(&with(&[("OPENAI_API_KEY", "sk")])).is_empty());
    let warning = "openai: OPENAI_API_KEY is not set; calls go out with the caller's own key";
    assert_eq!(warnings(&with(&[])), [warning]);
    assert_eq!(warnings(&with(&[("OPENAI_API_KEY", " ")])), [warning]);
}

/// R356-R358: variables without our prefix.
#[test]
fn unprefixed_variables_are_read_for_every_provider() {
    let environment = variables(&[
        ("OPENAI_MAX_CONCURRENT", "16"),
        ("ANTHROPIC_MAX_RETRIES", "2"),
        ("MY_HOUSE_MAX_CONCURRENT", "60"),
        ("MAX_CONCURRENT_THREADS", "64"),
        ("GROQ_MAX_CONCURRENT", "5"),
    ]);
    let text = "[providers.my-house]\nbase_url = \"http://localhost\"\n";
    let loader = Loader::default().environment(environment);
    let config = loader.text("tidegate.toml", text).unwrap();
    let openai = &config.providers["openai"];
    assert_eq!(openai.max_concurrent_requests.value.get(), 16);
    assert_eq!(openai.max_concurrent_requests.source, Source::Environment);
    assert_eq!(config.providers["anthropic"].max_retries.value, 2);
    assert_eq!(config.providers["my-house"].max_concurrent_requests.value.get(), 60);
    assert!(!config.providers.contains_key("groq"), "a variable alone does not add a provider");
    assert_eq!(config.warnings, []);
}

/// R359, R360, R363: bounds apply to the effective value, whatever its source.
#[test]
fn invalid_concurrency_is_replaced_with_one_warning() {
    let safe = "concurrency limit not configured. Defaulting to 1 for safety.";
    let capped =
        |limit| format!("concurrency limit ({limit}) exceeds maximum (32). Capping at 32.");
    for (value, used, warning) in [
        ("0", 1, Some(safe.to_owned())),
        ("-3", 1, Some(safe.to_owned())),
        ("abc", 1, Some(safe.to_owned())),
        ("100", 32, Some(capped(100))),
        ("1000", 32, Some(capped(1000))),
        ("32", 32, None),
        ("2", 2, None),
    ] {
        let warning: Vec<_> = warning.map(|it| format!("openai: {it}")).into_iter().collect();
        let environment = variables(&[("OPENAI_MAX_CONCURRENT", value)]);
        let by_variable = Loader::default().environment(environment).text_layers("none", "");
        let stored = Patch::default().set("providers.openai.max_concurrent_requests", value);
        let by_database = Loader::default().text_layers("none", "");
        let by_database = by_database.with_overrides(stored.apply(&Overrides::new()));
        for layers in [by_variable, by_database] {
            let config = layers.validate().unwrap();
            assert_eq!(config.providers["openai"].max_concurrent_requests.value.get(), used);
            assert_eq!(warnings(&layers), warning);
            let effective = layers.effective();
            let key = "providers.openai.max_concurrent_requests";
            let shown = effective.iter().find(|it| it.key == key).unwrap();
            assert_eq!(shown.value, used.to_string());
            assert_eq!(shown.configured.is_some(), !warning.is_empty(), "{shown:?}");
        }
    }
}

#[test]
fn mock_is_exempt_and_the_cap_is_configurable() {
    let mock = "[providers.mock]\nbase_url = \"http://localhost\"\n";
    let with = |pairs: &[(&str, &str)]| {
        Loader::default().environment(variables(pairs)).text_layers("tidegate.toml", mock)
    };
    let concurrency = |layers: &tidegate_config::Layers, name: &str| {
        layers.validate().unwrap().providers[name].max_concurrent_requests.value.get()
    };
    assert_eq!(concurrency(&with(&[]), "mock"), 100);
    let wide = with(&[
        ("MOCK_MAX_CONCURRENT", "200"),
        ("OPENAI_MAX_CONCURRENT", "70"),
        ("MAX_CONCURRENT_THREADS", "64"),
    ]);
    assert_eq!((concurrency(&wide, "mock"), concurrency(&wide, "openai")), (200, 64));
    let broken = with(&[("MAX_CONCURRENT_THREADS", "many"), ("OPENAI_MAX_CONCURRENT", "70")]);
    assert_eq!(concurrency(&broken, "openai"), 32);
    assert_eq!(
        warnings(&broken),
        [
            "MAX_CONCURRENT_THREADS: maximum of concurrency limits is not a number >= 1. Using 32.",
            "openai: concurrency limit (70) exceeds maximum (32). Capping at 32.",
        ]
    );
    let house = "[providers.house]\nbase_url = \"http://localhost\"\n";
    let house = Loader::default().text_layers("tidegate.toml", house);
    assert_eq!(
        warnings(&house),
        ["house: concurrency limit not configured. Defaulting to 1 for safety."],
        "neither a value nor a default"
    );
}

#[test]
fn invalid_retries_fall_back_to_the_default_with_a_warning() {
    for (value, used, warned) in
        [("0", 0, false), ("20", 20, false), ("21", 8, true), ("-1", 8, true), ("x", 8, true)]
    {
        let environment = variables(&[("OPENAI_MAX_RETRIES", value)]);
        let layers = Loader::default().environment(environment).text_layers("none", "");
        assert_eq!(layers.validate().unwrap().providers["openai"].max_retries.value, used);
        let expected = "openai: max_retries must be from 0 to 20; using 8".to_owned();
        assert_eq!(warnings(&layers), Vec::from_iter(warned.then_some(expected)));
    }
}

#[test]
fn prefixed_variable_overrides_the_unprefixed_one() {
    let environment =
        variables(&[("OPENAI_MAX_RETRIES", "5"), ("TIDEGATE_PROVIDERS_OPENAI_MAX_RETRIES", "3")]);
    let layers = Loader::default().environment(environment).text_layers("none", "");
    assert_eq!(layers.validate().unwrap().providers["openai"].max_retries.value, 3);
    assert_eq!(
        warnings(&layers),
        ["OPENAI_MAX_RETRIES is ignored: TIDEGATE_PROVIDERS_OPENAI_MAX_RETRIES sets the same \
             key and takes precedence"]
    );
    let zero = variables(&[("TIDEGATE_PROVIDERS_OPENAI_MAX_CONCURRENT_REQUESTS", "0")]);
    let error = Loader::default().environment(zero).text("none", "").unwrap_err().to_string();
    assert!(
        error.ends_with("= 0: must be a whole number >= 1"),
        "our own variable must be valid: {error}"
    );
}

/// Returns requests, input tokens and output tokens per minute, and requests per day.
fn numbers(constraint: &Constraint) -> [u32; 4] {
    let numbers = [
        constraint.requests_per_minute(),
        constraint.input_tokens_per_minute(),
        constraint.output_tokens_per_minute(),
        constraint.requests_per_day(),
    ];
    numbers.map(|number| number.map_or(0, NonZeroU32::get))
}

/// R374, R115.
#[test]
fn configured_limits_override_those_of_the_tier() {
    let of = |provider: &str, text: &str| {
        let config = config(&format!("[providers.{provider}]\n{text}\n")).unwrap();
        let config = &config.providers[provider];
        let entries = config.model_limits.iter();
        let entries = entries.filter_map(|(model, one)| Some((model.as_str(), one.constraint()?)));
        let all: BTreeMap<_, _> = config.tier_limits().chain(entries).collect();
        all.into_iter().map(|(model, one)| (model.to_owned(), numbers(one))).collect::<Vec<_>>()
    };
    let one = |model: &str, numbers| (model.to_owned(), numbers);
    assert_eq!(of("gemini", ""), []);
    assert_eq!(
        of("gemini", "tier = \"Tier_1\""),
        [
            one("gemini-2.0-flash", [2_000, 4_000_000, 0, 0]),
            one("gemini-2.0-flash-lite", [4_000, 4_000_000, 0, 0]),
            one("gemini-2.5-flash", [1_000, 1_000_000, 0, 10_000]),
            one("gemini-2.5-flash-lite", [4_000, 4_000_000, 0, 0]),
            one("gemini-2.5-pro", [150, 2_000_000, 0, 10_000]),
        ]
    );
    let with = |text: &str| of("anthropic", &format!("tier = \"scale\"\n{text}"));
    let sonnet = |numbers| Some(one("claude-sonnet-4-*", numbers));
    let found = |text: &str| with(text).into_iter().find(|(model, _)| model == "claude-sonnet-4-*");
    assert_eq!(found(""), sonnet([10_000, 10_000_000, 2_000_000, 0]));
    assert_eq!(found("requests_per_minute = 60"), sonnet([0, 10_000_000, 2_000_000, 0]));
    assert_eq!(found("tokens_per_minute = 90"), sonnet([10_000, 0, 0, 0]));
    let both = "requests_per_minute = 60\ntokens_per_minute = 90";
    assert_eq!(with(both), [], "nothing is left of the tier");
    let pattern = "[providers.anthropic.models.\"claude-*\"]\nrequests_per_minute = 7";
    assert_eq!(with(pattern), [one("claude-*", [7, 0, 0, 0])], "an entry replaces the rows in it");
    let entry = "[providers.anthropic.models.claude-sonnet-4-6]\nrequests_per_minute = 7";
    let completed = one("claude-sonnet-4-6", [7, 10_000_000, 2_000_000, 0]);
    assert!(with(entry).contains(&completed), "an entry is completed by the row for its name");
}

/// R118: unlike a request to the planner, a file can name any provider.
#[test]
fn unknown_tier_is_an_error_that_names_the_known_ones() {
    let line = |provider: &str, tier: &str| {
        let text = format!("[providers.{provider}]\ntier = \"{tier}\"\n");
        let lines = error_lines(&text);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0].rsplit_once("\": ").unwrap().1.to_owned()
    };
    assert_eq!(line("gemini", "tier2"), "is not a tier of gemini; did you mean `tier_2`?");
    assert_eq!(
        line("anthropic", "gold"),
        "is not a tier of anthropic; known tiers are build, scale, start"
    );
    let none = "is not in the tier table, which has no tiers of ollama: set the limits themselves, \
                such as requests_per_minute";
    assert_eq!(line("ollama", "tier_1"), none);
}

#[test]
fn limits_of_a_tier_are_shown_with_their_source() {
    let text = "[providers.openai]\ntier = \"tier_1\"\n";
    let shown = Loader::default().text_layers("tidegate.toml", text).effective();
    let shown: Vec<_> = shown.iter().filter(|it| it.is_in("providers.openai.models")).collect();
    let first = shown[0];
    assert_eq!(first.key, "providers.openai.models.gpt-4o.requests_per_minute");
    assert_eq!((first.value.as_str(), first.source), ("500", Source::File));
    assert_eq!(first.note.as_deref(), Some("tier table, 2026-09-24"));
    assert!(shown.iter().any(|it| it.key.ends_with("gpt-4o-mini.requests_per_day")));
}

#[test]
fn variables_match_provider_and_limit_names() {
    let text =
        "[providers.my-house]\nbase_url = \"http://localhost\"\n[limits.\"a.b\"]\nrate = \"1/s\"\n";
    let environment = variables(&[
        ("TIDEGATE_PROVIDERS_MY_HOUSE_INPUT_TOKENS_PER_MINUTE", "7"),
        ("TIDEGATE_PROVIDERS_MY_HOUSE_ENDPOINTS_CHAT_REQUESTS_PER_MINUTE", "8"),
        ("TIDEGATE_PROVIDERS_GROQ_MAX_WAIT", "5s"),
        ("TIDEGATE_LIMITS_A_B_RATE", "2/s"),
        ("TIDEGATE_LIMITS_NEW_ONE_ALLOWANCE", "3"),
        ("TIDEGATE_LIMITS_A_B_RATES", "3/s"),
    ]);
    let config = Loader::default().environment(environment).text("tidegate.toml", text).unwrap();
    let house = &config.providers["my-house"];
    assert_eq!(house.limits.input_tokens_per_minute.value.unwrap().get(), 7);
    assert_eq!(house.endpoints["chat"].requests_per_minute.value.unwrap().get(), 8);
    assert_eq!(config.providers["groq"].base_url.value, "https://api.groq.com");
    let limits: Vec<_> = config.limits.by_name.keys().collect();
    assert_eq!(limits, ["a.b", "new_one"]);
    let hints: Vec<_> = config.unknown_variables.iter().map(ToString::to_string).collect();
    assert_eq!(
        hints,
        ["TIDEGATE_LIMITS_A_B_RATES is set but is not a known variable; did you mean \
          TIDEGATE_LIMITS_A_B_RATE?"]
    );
    // A variable that matches two limits is an error.
    let both = "[limits.a-b]\nrate = \"1/s\"\n[limits.a_b]\nrate = \"1/s\"\n";
    let environment = variables(&[("TIDEGATE_LIMITS_A_B_RATE", "2/s")]);
    let error = Loader::default().environment(environment).text("tidegate.toml", both).unwrap_err();
    assert_eq!(
        error.to_string(),
        "TIDEGATE_LIMITS_A_B_RATE: matches more than one setting: limits.a-b.rate or \
         limits.a_b.rate; set it in the file instead"
    );
}

/// The gateway cannot call a mock, and the number of fallbacks is limited.
#[test]
fn fallback_rejects_mocks_and_too_many_providers() {
    let named = "[providers.openai]\nfallback = [\"house\"]\n[providers.house]\n\
                 base_url = \"http://localhost\"\n";
    assert!(config(named).is_ok());
    let mock = |line: &str| line.contains("must not name") && line.contains("which is a mock");
    let lines = error_lines(&format!("{named}dialect = \"mock\"\n"));
    assert!(lines.len() == 1 && mock(&lines[0]), "{lines:?}");
    let by_name = named.replace("house", "mock");
    let lines = error_lines(&by_name);
    assert!(lines.len() == 1 && mock(&lines[0]), "{lines:?}");
    let chain = |length: usize| {
        let list = vec!["\"anthropic\""; length].join(", ");
        config(&format!("[providers.openai]\nfallback = [{list}]\n"))
    };
    assert!(chain(10).is_ok());
    let error = chain(11).unwrap_err().to_string();
    assert!(error.ends_with("must name at most 10 providers"), "{error}");
    let change = format!("[{}]", ["\"anthropic\""; 11].join(","));
    assert!(Patch::default().set("providers.openai.fallback", &change).check().is_err());
}

/// The settings determine the pool size that the gateway uses.
///
/// Setting: providers.*.auto_tune.increase_factor, providers.*.auto_tune.increase_below_percent
#[test]
fn auto_tuning_follows_its_settings() {
    let pool = |text: &str, env: &[(&str, &str)]| {
        let loader = Loader::default()
            .environment(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        loader.text("tidegate.toml", text).unwrap().providers["openai"].pool_size()
    };
    let adaptive = |start, cap| PoolSize::Adaptive(Tuning::new(start, cap));
    assert_eq!(pool("", &[]), adaptive(8, 1_024));
    assert_eq!(pool("", &[("MAX_CONCURRENT_THREADS", "4")]), adaptive(4, 4));
    assert_eq!(pool("[providers.openai]\nmax_concurrent_requests = 3", &[]), PoolSize::Fixed(3));
    let off = "[providers.openai.auto_tune]\nenabled = false";
    assert_eq!(pool(off, &[]), PoolSize::Fixed(8));
    let low = "[providers.openai.auto_tune]\nceiling = 5";
    assert_eq!(pool(low, &[]), adaptive(5, 5), "it starts no higher than the ceiling");
    let all = "[providers.openai]\nmax_concurrent_requests = 10\n[providers.openai.auto_tune]\n\
               enabled = true\nceiling = 50\ndecrease_above_percent = 20\ndecrease_factor = 0.5\n\
               increase_below_percent = 2\nincrease_factor = 1.5\nmax_latency = \"2s\"";
    let mut tuning = Tuning::new(10, 50);
    (tuning.decrease_above, tuning.decrease_to) = (200, 500);
    (tuning.increase_below, tuning.increase_to) = (20, 1_500);
    tuning.max_latency = Some(Duration::from_secs(2));
    assert_eq!(pool(all, &[]), PoolSize::Adaptive(tuning));
}

#[test]
fn contradictory_auto_tuning_is_rejected() {
    for (lines, expected) in [
        ("decrease_factor = 1.0", "must be a number from 0.1 to 0.99"),
        ("increase_factor = 0.9", "must be a number from 1.01 to 10"),
        ("increase_below_percent = 5", "must be below decrease_above_percent"),
        ("ceiling = 0", "must be"),
        ("interval = \"1s\"", "is not a known key"),
    ] {
        let text = format!("[providers.openai.auto_tune]\n{lines}\n");
        let errors = error_lines(&text);
        assert!(errors[0].contains(expected), "{lines}: {errors:?}");
    }
    let above = "[providers.openai]\nmax_concurrent_requests = 9\n[providers.openai.auto_tune]\n\
                 enabled = true\nceiling = 8\n";
    assert!(error_lines(above)[0].contains("at least max_concurrent_requests (9)"));
}

/// A list only names models; a table gives them limits, and names those without a wildcard.
#[test]
fn models_are_a_list_or_a_table() {
    let of = |text: &str| config(text).unwrap().providers["openai"].clone();
    let list = of("[providers.openai]\nmodels = [\"gpt-4o\", \"o1\"]\n");
    assert_eq!(
        (list.models.value, list.model_limits.len()),
        (vec!["gpt-4o".into(), "o1".into()], 0)
    );
    let table = of("[providers.openai.models.\"gpt-4o\"]\nrequests_per_minute = 60\n\
                    [providers.openai.models.\"gpt-4.1*\"]\nmax_concurrent_requests = 2\n");
    assert_eq!(table.models.value, ["gpt-4o"]);
    let limits = table.model_limits["gpt-4o"].constraint().unwrap();
    assert_eq!(limits.requests_per_minute().map(NonZeroU32::get), Some(60));
    let limits = table.model_limits["gpt-4.1*"].constraint().unwrap();
    assert_eq!(limits.concurrency().map(NonZeroU32::get), Some(2));
    let unknown = error_lines("[providers.openai.models.\"gpt-4o\"]\nrequests_per_minut = 60\n");
    assert!(unknown[0].contains("did you mean `requests_per_minute`"), "{unknown:?}");
    let spaced = error_lines("[providers.openai.models.\"gpt 4o\"]\nrequests_per_minute = 60\n");
    assert!(spaced[0].contains("is not a model name or pattern"), "{spaced:?}");
}

#[test]
fn inner_concurrency_above_the_provider_causes_a_warning() {
    let text = "[providers.openai]\nmax_concurrent_requests = 8\n\
                [providers.openai.endpoints.embeddings]\nmax_concurrent_requests = 16\n";
    let warnings: Vec<_> = config(text).unwrap().warnings.iter().map(ToString::to_string).collect();
    let expected = "openai embeddings: max_concurrent_requests (16) exceeds that of the provider \
                    (8), which limits all of its calls together";
    assert_eq!(warnings, [expected]);
}
