//! Settings of a provider that need a module, or the environment, to have an effect.

use std::time::Duration;

use tidegate_config::{Layers, Loader};
use tidegate_llm::Credential;
use tidegate_llm::mock::{Mock, Step};

use super::{Log, answering, at_once, call_at_once, layers, models, registry};
use crate::variables;

/// Starts 12 calls that take a second each, and returns how many are in flight at once.
async fn in_flight(layers: &Layers) -> (usize, String) {
    let slow = Mock::new("openai").always(Step::reply("Elbe").after(Duration::from_secs(1)));
    let models = registry(layers, &[("openai", slow)]);
    let model = models.load_model("openai", "any").build().unwrap();
    let ends = call_at_once(&model, 12).await;
    let first = ends.iter().filter(|end| **end == Duration::from_secs(1)).count();
    (first, model.to_string())
}

/// The number of concurrent calls needs no other setting, and comes from the file, the environment
/// or the database.
#[tokio::test(start_paused = true)]
async fn concurrency_alone_is_effective() {
    let text = "[providers.openai]\nmax_concurrent_requests = 3\n";
    let environment = variables(&[("OPENAI_MAX_CONCURRENT", "5")]);
    let file = layers(text);
    let variable = Loader::default().environment(environment).text_layers("tidegate.toml", text);
    let stored = ("providers.openai.max_concurrent_requests".to_owned(), "2".to_owned());
    let database = variable.with_overrides([stored].into_iter().collect());
    for (layers, expected) in [(file, 3), (variable, 5), (database, 2)] {
        let limited = "RateLimit(openai/any)".to_owned();
        assert_eq!(in_flight(&layers).await, (expected, limited));
    }
    let environment = variables(&[("OPENAI_MAX_CONCURRENT", "4")]);
    let alone = Loader::default().environment(environment).text_layers("tidegate.toml", "");
    assert_eq!(in_flight(&alone).await.0, 4, "no file at all");
    assert_eq!(in_flight(&layers("")).await, (12, "openai/any".to_owned()));
    let off = layers(&format!("[modules.rate_limit]\nenabled = false\n{text}"));
    assert_eq!(in_flight(&off).await, (12, "openai/any".to_owned()), "turned off");
}

/// With the module's limits if there are any, else with limits that are learned.
#[tokio::test(start_paused = true)]
async fn concurrency_alone_adds_no_other_limit() {
    let text = "[providers.openai]\nmax_concurrent_requests = 30\n";
    let at_once_with = async |text: &str| {
        let models = models(text, &[answering("openai")]);
        at_once(&models.load_model("openai", "any").build().unwrap()).await
    };
    assert_eq!(at_once_with(text).await, 40, "nothing is limited until the provider reports it");
    let module = "[modules.rate_limit]\nenabled = true\nburst_capacity = 7\n";
    assert_eq!(at_once_with(&format!("{module}{text}")).await, 7);
}

/// R28, R29: the 60 requests of the section are no default of files without it.
#[tokio::test(start_paused = true)]
async fn limits_are_learned_without_the_section() {
    for (text, expected) in [
        ("", None),
        ("[providers.openai]\nmax_retries = 2\n", None),
        ("[modules.retry]\nenabled = true\n", None),
        ("[modules.rate_limit]\n", Some("requests_per_minute=60 burst=60")),
        ("[modules.rate_limit]\nenabled = false\n", Some("requests_per_minute=60 burst=60")),
        ("[modules.rate_limit]\nrequests_per_minute = 7\n", Some("requests_per_minute=7 burst=7")),
    ] {
        let models = models(text, &[answering("openai")]);
        let model = models.load_model("openai", "any").rate_limit(true).build().unwrap();
        let limits = model.account().unwrap().limits();
        let shown = limits.account_limit().map(|(limits, _)| limits.to_string());
        assert_eq!(shown.as_deref(), expected, "{text}");
    }
}

/// A shell cannot set variables with a dash. A key is never sent to another provider than its own.
#[test]
fn key_of_a_name_with_a_dash_comes_from_the_environment() {
    let one =
        "[providers.my-house]\nbase_url = \"http://127.0.0.1:1\"\nmax_concurrent_requests = 2\n";
    let other = one.replace("my-house", "my_house");
    let has_key = |text: &str| {
        let environment = variables(&[("MY_HOUSE_API_KEY", "sk-mine")]);
        let layers = Loader::default().environment(environment).text_layers("tidegate.toml", text);
        let models = layers.models().unwrap().build();
        models.load_model("my-house", "any").build().unwrap();
        models.account("my-house", &Credential::new("sk-mine")).is_some()
    };
    assert!(has_key(one));
    let log = Log::default();
    let _listening = log.listen();
    assert!(!has_key(&format!("{one}{other}")), "of which of them?");
    let lines = log.lines("matches several providers and is not used; set api_key_env");
    assert_eq!(lines.len(), 2, "one for each of them");
}

/// A setting of a module that is not on is reported, unless the module is turned off.
#[test]
fn settings_without_their_module_are_errors() {
    let ramp = "[providers.openai]\nramp_up = \"60s\"\n";
    let breaker = "[providers.openai]\nbreaker_failures = 3\n";
    for (text, reported) in [
        (
            ramp.to_owned(),
            Some(
                "tidegate.toml:2:11: providers.openai.ramp_up = \"60s\": has no effect in the \
                 library: calls are not rate limited; set modules.rate_limit.enabled, or a limit",
            ),
        ),
        (format!("{ramp}requests_per_minute = 60\n"), None),
        (format!("{ramp}max_concurrent_requests = 6\n"), None),
        (format!("{ramp}[modules.rate_limit]\nenabled = true\n"), None),
        (format!("{ramp}[modules.rate_limit]\nenabled = false\n"), None),
        (
            breaker.to_owned(),
            Some(
                "tidegate.toml:2:20: providers.openai.breaker_failures = 3: has no effect in the \
                 library: a breaker needs retries or fallbacks; set modules.retry.enabled, \
                 max_retries or fallback",
            ),
        ),
        (format!("{breaker}max_retries = 2\n"), None),
        (format!("{breaker}fallback = [\"anthropic\"]\n"), None),
        (format!("{breaker}[modules.retry]\nenabled = true\n"), None),
        (format!("{breaker}[modules.retry]\nenabled = false\n"), None),
        (breaker.replace("_failures = 3", " = false"), None),
    ] {
        let error = layers(&text).models().err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), reported, "{text}");
    }
}
