//! Models of the library stack that a configuration describes.

mod own_settings;

use std::fs;
use std::io::{self, BufRead as _};
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_config::{Layers, Loader, ModelsError, load_models};
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::models::{LoadError, Model, Models, ModelsBuilder};
use tidegate_llm::{Chat, Class, Credential};
use tokio::time::Instant;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

use crate::variables;
use crate::yaml::SEED;

fn layers(text: &str) -> Layers {
    Loader::default().text_layers("tidegate.toml", text)
}

/// Returns a registry with mocks in place of these providers.
fn registry(layers: &Layers, mocks: &[(&str, Mock)]) -> Models {
    let add = |builder: ModelsBuilder, (provider, mock): &(&str, Mock)| {
        builder.backend(*provider, mock.clone())
    };
    mocks.iter().fold(layers.models().unwrap(), add).build()
}

fn models(text: &str, mocks: &[(&str, Mock)]) -> Models {
    registry(&layers(text), mocks)
}

/// A provider that answers at once.
fn answering(provider: &str) -> (&str, Mock) {
    (provider, Mock::new(provider).always(Step::reply("Elbe")))
}

/// Makes calls at the same time, and returns when each ended.
async fn call_at_once(model: &Model, calls: usize) -> Vec<Duration> {
    let start = Instant::now();
    let call = || async {
        model.invoke(Chat::user("hello")).await.unwrap();
        start.elapsed()
    };
    let mut ends = join_all((0..calls).map(|_| call())).await;
    ends.sort();
    ends
}

/// Returns the number of calls that can be made at once.
async fn at_once(model: &Model) -> usize {
    call_at_once(model, 40).await.into_iter().filter(Duration::is_zero).count()
}

/// A second subscriber that discards everything. With only one subscriber, `tracing` caches the
/// interest of a callsite from the first thread that reaches it, so a test on another thread could
/// disable it.
static SECOND_SUBSCRIBER: LazyLock<Dispatch> =
    LazyLock::new(|| tracing_subscriber::fmt().with_writer(io::sink).finish().into());

/// Log lines of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Captures lines until the guard is dropped.
    fn listen(&self) -> DefaultGuard {
        LazyLock::force(&SECOND_SUBSCRIBER);
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Returns the lines that contain `text`.
    fn lines(&self, text: &str) -> Vec<String> {
        let all = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = all.lines().map(|line| line.trim().to_owned());
        lines.filter(|line| line.contains(text)).collect()
    }
}

/// R26, R51: a file to a model. With a burst of 5 and one call per second, the 100th call waits 95
/// seconds, and each of the 95 that wait is logged.
///
/// Setting: modules.rate_limit.enabled, modules.rate_limit.requests_per_minute
/// Setting: modules.rate_limit.burst_capacity
#[tokio::test(start_paused = true)]
async fn model_follows_the_rate_limits_of_a_file() {
    let log = Log::default();
    let _listening = log.listen();
    let text =
        "[modules.rate_limit]\nenabled = true\nrequests_per_minute = 60\nburst_capacity = 5\n";
    let models = models(text, &[answering("mock")]);
    let model = models.load_model("mock", "any").build().unwrap();
    assert_eq!(model.to_string(), "RateLimit(mock/any)");
    let ends = call_at_once(&model, 100).await;
    for (call, end) in ends.iter().enumerate() {
        let seconds = call.saturating_sub(4) as u64;
        assert_eq!(*end, Duration::from_secs(seconds), "call {call}");
    }
    let lines = log.lines("Rate limited");
    let expected = (1..=95).map(|seconds| {
        format!("WARN Rate limited for provider 'mock'. Waited {seconds}.00s for token.")
    });
    assert_eq!(lines, expected.collect::<Vec<_>>());
    models.clear_cache();
    let fresh = models.load_model("mock", "any").build().unwrap();
    assert_eq!(at_once(&fresh).await, 5, "a full bucket");
    let off = models.load_model("mock", "any").rate_limit(false).build().unwrap();
    assert_eq!(off.to_string(), "mock/any");
}

/// R51, R57: nothing is limited, retried or replaced unless a file says so.
#[tokio::test(start_paused = true)]
async fn without_a_file_no_module_is_on() {
    let (_, defaults) = tidegate_config::DEFAULT_FILE.split_once("[modules").unwrap();
    for text in ["", &format!("[modules{defaults}")] {
        let models = models(text, &[answering("openai")]);
        let model = models.load_model("openai", "gpt-4o").build().unwrap();
        assert_eq!(model.to_string(), "openai/gpt-4o");
        let limited = models.load_model("openai", "gpt-4o").retry(true).build().unwrap();
        assert_eq!(limited.to_string(), "Retry(openai/gpt-4o)");
    }
}

/// R125: the configuration of the source document has an effect.
///
/// Setting: providers.*.model
#[tokio::test(start_paused = true)]
async fn model_follows_the_configuration_of_the_source_document() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("config.yaml");
    fs::write(&file, SEED).unwrap();
    let layers = Loader::default().file(&file).layers().unwrap();
    let models = registry(&layers, &[answering("gemini")]);
    let model = models.load_model("gemini", None).build().unwrap();
    assert_eq!(model.to_string(), "RateLimit(gemini/gemini-2.0-flash)");
    let spacing = Duration::from_millis(100);
    let ends = call_at_once(&model, 4).await;
    assert_eq!(ends, [Duration::ZERO, spacing, spacing * 2, spacing * 3]);
    let limits = model.account().unwrap().limits();
    let (limits, _) = limits.account_limit().unwrap();
    assert_eq!(limits.requests_per_minute().unwrap().get(), 1_000);
    assert_eq!(limits.tokens_per_minute().unwrap().get(), 4_000_000);
    assert_eq!(limits.min_interval(), spacing);
}

/// R374: the tier of an account alone sets the limits of its models.
#[tokio::test(start_paused = true)]
async fn models_have_the_limits_of_the_tier() {
    for (tier, burst) in [("tier_1", 500 / 60), ("tier_5", 40)] {
        let text = format!("[providers.openai]\ntier = \"{tier}\"\nmax_concurrent_requests = 64\n");
        let environment = variables(&[("MAX_CONCURRENT_THREADS", "64")]);
        let layers = Loader::default().environment(environment).text_layers("tidegate.toml", &text);
        let models = registry(&layers, &[answering("openai")]);
        let model = models.load_model("openai", "gpt-4o").build().unwrap();
        assert_eq!(at_once(&model).await, burst, "{tier}: one second's worth");
    }
}

/// R355: the database overrides the environment, which overrides the file.
#[tokio::test(start_paused = true)]
async fn layers_of_a_model_have_their_precedence() {
    let text = "[modules.rate_limit]\nenabled = true\nburst_capacity = 3\n";
    let environment = variables(&[("TIDEGATE_MODULES_RATE_LIMIT_BURST_CAPACITY", "4")]);
    let file = layers(text);
    let variable = Loader::default().environment(environment).text_layers("tidegate.toml", text);
    let stored = ("modules.rate_limit.burst_capacity".to_owned(), "5".to_owned());
    let database = variable.with_overrides([stored].into_iter().collect());
    for (layers, burst) in [(file, 3), (variable, 4), (database, 5)] {
        let models = registry(&layers, &[answering("mock")]);
        let model = models.load_model("mock", "any").build().unwrap();
        assert_eq!(at_once(&model).await, burst);
    }
}

/// Setting: modules.retry.enabled, modules.retry.max_delay
/// Setting: modules.fallback.enabled, modules.fallback.chain
#[tokio::test(start_paused = true)]
async fn model_is_retried_and_falls_back_as_a_file_says() {
    let failing = Mock::new("openai").always(Step::fail(Class::Transient));
    let other = Mock::new("anthropic").always(Step::reply("from anthropic"));
    let text = "[modules.fallback]\nenabled = true\nchain = [\"anthropic/claude-sonnet-5\"]\n\
                [modules.retry]\nenabled = true\nmax_delay = \"2s\"\n";
    let both = models(text, &[("openai", failing), ("anthropic", other)]);
    let model = both.load_model("openai", "gpt-4o").build().unwrap();
    assert_eq!(model.to_string(), "Retry(Fallback(openai/gpt-4o))");
    assert_eq!(model.invoke(Chat::user("hello")).await.unwrap().text, "from anthropic");

    let text = "[modules.retry]\nenabled = true\nmax_delay = \"2s\"\n\
                [providers.openai]\nmax_retries = 10\nbreaker = false\n";
    let failing = Mock::new("openai").always(Step::fail(Class::Transient));
    let model = models(text, &[("openai", failing.clone())])
        .load_model("openai", "gpt-4o")
        .build()
        .unwrap();
    let start = Instant::now();
    model.invoke(Chat::user("hello")).await.unwrap_err();
    assert_eq!(failing.call_count(), 11);
    assert!(start.elapsed() <= Duration::from_secs(1 + 9 * 2), "{:?}", start.elapsed());
}

/// A provider's own setting turns a module on, unless the module is turned off.
#[tokio::test(start_paused = true)]
async fn settings_of_a_provider_turn_modules_on() {
    let text = "[providers.openai]\nrequests_per_minute = 600\nmax_retries = 2\n\
                fallback = [\"groq\"]\n\
                [providers.groq]\nmodel = \"llama-4\"\nrequests_per_minute = 60\n";
    let mocks = ["openai", "groq", "anthropic"].map(answering);
    let on = models(text, &mocks);
    let shown =
        |models: &Models, provider| models.load_model(provider, "any").build().unwrap().to_string();
    assert_eq!(shown(&on, "openai"), "Retry(Fallback(RateLimit(openai/any)))");
    assert_eq!(shown(&on, "groq"), "RateLimit(groq/any)");
    assert_eq!(shown(&on, "anthropic"), "anthropic/any");
    let off = "[modules.rate_limit]\nenabled = false\n[modules.retry]\nenabled = false\n\
               [modules.fallback]\nenabled = false\n";
    assert_eq!(shown(&models(&format!("{off}{text}"), &mocks), "openai"), "openai/any");
}

/// Setting: modules.retry.attempt_timeout
#[tokio::test(start_paused = true)]
async fn silent_attempt_ends_with_its_timeout() {
    // A server that accepts connections and never responds.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "[modules.retry]\nattempt_timeout = \"7s\"\n\
         [providers.openai]\nbase_url = \"http://{}\"\n",
        server.local_addr().unwrap()
    );
    let model = layers(&text).models().unwrap().build();
    let model = model.load_model("openai", "gpt-4o").build().unwrap();
    let start = Instant::now();
    model.invoke(Chat::user("hello")).await.unwrap_err();
    assert_eq!(start.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn calls_wait_no_longer_than_a_file_says() {
    let text = "[providers.openai]\nrequests_per_minute = 60\nmax_wait = \"2s\"\n";
    let models = models(text, &[answering("openai")]);
    let model = models.load_model("openai", "gpt-4o").build().unwrap();
    let start = Instant::now();
    let calls = join_all((0..5).map(|_| model.invoke(Chat::user("hello")))).await;
    assert_eq!(calls.iter().filter(|call| call.is_ok()).count(), 2, "at 0 and about 1 seconds");
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn calls_go_through_the_proxy_of_a_file() {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let head = std::thread::spawn(move || {
        let (connection, _) = proxy.accept().unwrap();
        let mut line = String::new();
        io::BufReader::new(connection).read_line(&mut line).unwrap();
        line
    });
    let text = format!(
        "[proxy]\nhttp = \"http://{address}\"\n\
         [providers.ollama]\nbase_url = \"http://models.test\"\n"
    );
    let models = layers(&text).models().unwrap().build();
    let model = models.load_model("ollama", "llama3").build().unwrap();
    model.invoke(Chat::user("hello")).await.unwrap_err();
    assert_eq!(head.join().unwrap(), "POST http://models.test/api/chat HTTP/1.1\r\n");
}

#[test]
fn key_comes_from_the_environment() {
    let text = "[providers.mistral]\napi_key_env = \"MY_KEY\"\nrequests_per_minute = 60\n\
                [providers.openai]\nrequests_per_minute = 60\n";
    let environment = variables(&[("MY_KEY", "sk-mine"), ("OPENAI_API_KEY", " sk-usual ")]);
    let layers = Loader::default().environment(environment).text_layers("tidegate.toml", text);
    let models = layers.models().unwrap().build();
    for (provider, key) in [("mistral", "sk-mine"), ("openai", "sk-usual")] {
        models.load_model(provider, "any").build().unwrap();
        let account = models.account(provider, &Credential::new(key));
        assert!(account.is_some(), "{provider}");
    }
}

/// Nothing in a file is without effect.
#[test]
fn settings_that_the_library_cannot_apply_are_errors() {
    let text = r#"
[listen]
http = "127.0.0.1:8080"
[providers.openai]
api_key_env = "MY_KEY"
requests_per_minute = 0
first_byte_timeout = "5s"
models = ["gpt-4o"]
[providers.openai.all_keys]
requests_per_minute = 9
[providers.openai.endpoints.chat]
paths = ["/v1/chat/completions"]
[providers.anthropic.models.claude-opus-5]
requests_per_minute = 9
"#;
    let error = layers(text).models().unwrap_err().to_string();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(
        lines,
        [
            "tidegate.toml:3:8: listen.http = \"127.0.0.1:8080\": has no effect in the library: it \
             is a setting of the program `tidegate`",
            "tidegate.toml:5:15: providers.openai.api_key_env: MY_KEY is not set in this \
             environment: set it to the key",
            "tidegate.toml:6:23: providers.openai.requests_per_minute = 0: must be > 0",
            "tidegate.toml:7:22: providers.openai.first_byte_timeout = \"5s\": has no effect in the \
             library: set modules.retry.attempt_timeout",
            "tidegate.toml:8:10: providers.openai.models = [...]: has no effect in the library: a \
             list of models is for metrics of the gateway; a table sets their limits",
            "tidegate.toml:10:23: providers.openai.all_keys.requests_per_minute = 9: has no effect \
             in the library: a program has one key for a provider; set its limits",
            "tidegate.toml:12:9: providers.openai.endpoints.chat.paths = [...]: has no effect in \
             the library: calls name their endpoint",
        ]
    );
    let elsewhere = variables(&[("TIDEGATE_LISTEN_HTTP", "127.0.0.1:0")]);
    let elsewhere = Loader::default().environment(elsewhere).text_layers("tidegate.toml", "");
    assert!(elsewhere.models().is_ok(), "a variable may be meant for the program");
}

/// R51: one call at the start of a program, and `load_model` follows the file.
#[test]
fn load_model_of_the_process_follows_a_file() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("app.toml");
    let broken = "[modules.rate_limit]\nenabled = true\nburst_capacity = 0\n";
    fs::write(&file, broken).unwrap();
    assert!(matches!(load_models(&file), Err(ModelsError::Config(_))));
    fs::write(&file, broken.replace("= 0", "= 5")).unwrap();
    load_models(&file).unwrap();
    let model = tidegate_llm::models::load_model("openai", "gpt-4o").build().unwrap();
    assert_eq!(model.to_string(), "RateLimit(openai/gpt-4o)");
    let limits = model.account().unwrap().limits();
    let (limits, _) = limits.account_limit().unwrap();
    assert_eq!((limits.requests_per_minute().unwrap().get(), limits.burst()), (60, 5));
    let again = load_models(&file).unwrap_err();
    assert!(matches!(again, ModelsError::Load(LoadError::GlobalIsSet)), "{again}");
}

/// Returns the first example in a section of `docs/configuration.md`.
fn example(section: &str, language: &str) -> &'static str {
    let page = include_str!("../../../../docs/configuration.md");
    let (_, section) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let (_, example) = section.split_once(&format!("```{language}\n")).unwrap();
    example.split_once("```").unwrap().0
}

/// R374.
#[test]
fn documented_example_of_tiers_is_effective() {
    let example = layers(example("Account tiers", "toml"));
    let config = example.validate().unwrap();
    let requests = |provider: &str, model: &str| {
        let provider = &config.providers[provider];
        let limits = provider.tier_limits().find(|(pattern, _)| *pattern == model);
        let configured = provider.model_limits.get(model).and_then(|one| one.constraint());
        let limits = limits.map(|(_, limits)| limits).or(configured)?;
        limits.requests_per_minute().map(NonZeroU32::get)
    };
    assert_eq!(requests("gemini", "gemini-2.5-flash"), Some(2_000));
    assert_eq!(requests("openai", "gpt-4o"), Some(500));
    assert_eq!(requests("openai", "gpt-4o-mini"), Some(300), "an entry overrides the tier");
    assert_eq!(requests("anthropic", "claude-sonnet-4-*"), None, "the provider's limit applies");
    assert!(example.models().is_ok());
}

#[test]
fn documented_examples_of_models_are_effective() {
    let environment = variables(&[("OPENAI_API_KEY", "sk-1"), ("ANTHROPIC_API_KEY", "sk-2")]);
    let loader = || Loader::default().environment(environment.clone());
    let text = example("Models of the library", "toml");
    let models = loader().text_layers("tidegate.toml", text).models().unwrap().build();
    let model = models.load_model("openai", "gpt-4o").build().unwrap();
    assert_eq!(model.to_string(), "Retry(Fallback(RateLimit(openai/gpt-4o)))");
    let text = example("Files in YAML", "yaml");
    let models = loader().text_layers("config.yaml", text).models().unwrap().build();
    let model = models.load_model("gemini", None).build().unwrap();
    assert_eq!(model.to_string(), "RateLimit(gemini/gemini-2.0-flash)");
}
