//! Each module is off, on, overridden or inherited.

use std::convert::Infallible;
use std::future::pending;

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::Full;
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::models::{LoadError, Model, ModelBuilder, Models, Profile};
use tidegate_llm::settings::{RateLimitSettings, RetrySettings};
use tidegate_llm::{CallError, ConnectionFailure};
use tidegate_providers::{Chat, Credential, Message, Tool};
use tokio::time::Instant;
use tower::service_fn;
use tracing::Level;

use crate::log::Log;

use super::{SECOND, at_once, hello, limits, per_minute, registry, wait};

/// A registry with all modules on or all off.
fn registry_with_modules(enabled: bool) -> Models {
    registry(&["openai", "groq"])
        .rate_limit(limits(60, 60).enabled(enabled))
        .retry(RetrySettings::new().enabled(enabled))
        .fallback_to(["groq/llama"])
        .fallback(enabled)
        .build()
}

#[test]
fn modules_follow_the_registry_unless_overridden() {
    for enabled in [false, true] {
        let models = registry_with_modules(enabled);
        let cases = [(None, enabled), (Some(false), false), (Some(true), true)];
        for (requested, expected) in cases {
            let load = |retry: Option<bool>, fallback: Option<bool>, rate_limit: Option<bool>| {
                let builder = models.load_model("openai", "gpt-4o");
                let builder = retry.into_iter().fold(builder, ModelBuilder::retry);
                let builder = fallback.into_iter().fold(builder, ModelBuilder::fallback);
                rate_limit.into_iter().fold(builder, ModelBuilder::rate_limit).build().unwrap()
            };
            let off = Some(false);
            let modules = |module| if expected { vec![module] } else { Vec::new() };
            let model = load(off, off, requested);
            assert_eq!(model.modules(), modules("RateLimit"), "{enabled} {requested:?}");
            let model = load(off, requested, off);
            assert_eq!(model.modules(), modules("Fallback"), "{enabled} {requested:?}");
            let model = load(requested, off, off);
            assert_eq!(model.modules(), modules("Retry"), "{enabled} {requested:?}");
        }
        let overridden = models
            .load_model("openai", "gpt-4o")
            .retry(RetrySettings::new())
            .fallback_to(["groq/llama"])
            .rate_limit(RateLimitSettings::new())
            .build()
            .unwrap();
        assert_eq!(overridden.modules().len(), 3, "overrides turn a module on");
    }
}

#[test]
fn order_of_modules_is_fixed() {
    let model = registry_with_modules(false)
        .load_model("OpenAI", "gpt-4o")
        .rate_limit(true)
        .fallback(true)
        .retry(true)
        .build()
        .unwrap();
    let order = ["Retry", "Fallback", "RateLimit"];
    assert_eq!(model.modules(), order);
    assert_eq!(model.to_string(), "Retry(Fallback(RateLimit(openai/gpt-4o)))");
    let inherited = registry_with_modules(true).load_model("openai", "gpt-4o").build().unwrap();
    assert_eq!(inherited.to_string(), "Retry(Fallback(RateLimit(openai/gpt-4o)))");
}

/// Without modules nothing is counted, stored, logged or reported.
#[tokio::test(start_paused = true)]
async fn model_without_modules_is_the_adapter_alone() {
    let models = registry(&["openai"]).rate_limit(limits(1, 1).enabled(true)).build();
    let log = Log::default();
    let _listening = log.listen_from(Level::TRACE);
    let model = models.load_model("openai", "gpt-4o").rate_limit(false).build().unwrap();
    assert_eq!(model.to_string(), "openai/gpt-4o");
    assert!(model.account().is_none());
    for _ in 0..100 {
        assert!(wait(&model).await.is_zero());
    }
    assert_eq!(models.account_count(), 0);
    assert_eq!(log.lines(), [""; 0]);
    let off = RateLimitSettings::new().enabled(false);
    let model = models.load_model("openai", "gpt-4o").rate_limit(off).build().unwrap();
    assert!(model.modules().is_empty(), "{model}");
}

#[tokio::test(start_paused = true)]
async fn overrides_replace_single_settings_of_the_registry() {
    let models = registry(&["openai"]).rate_limit(limits(60, 60)).build();
    let model = models.load_model("openai", "a").rate_limit(per_minute(120)).build().unwrap();
    assert_eq!(at_once(&model).await, 60, "the burst of the settings");
    for _ in 0..4 {
        assert_eq!(wait(&model).await, SECOND / 2, "two a second");
    }
    models.clear_buckets();
    let models = registry(&["openai"]).rate_limit(per_minute(60)).build();
    let model = models.load_model("openai", "a").rate_limit(per_minute(120)).build().unwrap();
    assert_eq!(at_once(&model).await, 120, "without a burst it is that of a minute");
}

#[tokio::test(start_paused = true)]
async fn calls_and_replies_pass_through_unchanged() {
    let parameters = serde_json::json!({ "type": "object", "properties": { "city": {} } });
    let tool = Tool { name: "weather".into(), description: Some("of a city".into()), parameters };
    let chat = Chat::user("How is the weather?")
        .system("Be brief.")
        .message(Message::assistant("Where?"))
        .message(Message::user("In Hamburg."))
        .tool(tool)
        .max_tokens(7)
        .temperature(0.5)
        .stop("end")
        .extra("seed", 7);
    let mock = Mock::new("openai").always(Step::reply("Rain."));
    let models = Models::builder().backend("openai", mock.clone()).build();
    let load = || models.load_model("openai", "gpt-4o");
    let plain = load().build().unwrap().invoke(chat.clone()).await.unwrap();
    let limited = load().rate_limit(true).retry(true).build().unwrap();
    assert_eq!(limited.invoke(chat.clone()).await.unwrap(), plain);
    assert!(mock.calls().iter().all(|call| call.chat() == &chat));
    assert_eq!(mock.call_count(), 2);
}

#[test]
fn limits_are_set_by_name_when_loading() {
    let log = Log::default();
    let _listening = log.listen();
    let tokens = RateLimitSettings::new().requests_per_minute(90).tokens_per_minute(90_000);
    let models = registry(&["openai"]).rate_limit(tokens).build();
    let apart = RateLimitSettings::new().input_tokens_per_minute(50_000).concurrency(3);
    let model = models.load_model("openai", "a").rate_limit(apart).build().unwrap();
    let limits = model.account().unwrap().limits();
    let (constraint, _) = limits.account_limit().unwrap();
    assert_eq!(
        constraint.to_string(),
        "requests_per_minute=90 input_tokens_per_minute=50000 max_concurrent_requests=3 burst=90",
        "parts replace the total of the registry, and the rest of it stays"
    );
    let line = "INFO Created concurrency semaphore for provider 'openai' with limit=3";
    assert_eq!(log.lines(), [line]);
}

/// `true` configures nothing: nothing limits until the provider reports limits. An empty section
/// means 60 requests per minute (R28, R29).
#[tokio::test(start_paused = true)]
async fn switch_alone_learns_limits_and_an_empty_section_is_sixty_a_minute() {
    let began = Instant::now();
    let models = registry(&["openai"]).build();
    let model = models.load_model("openai", "a").rate_limit(true).build().unwrap();
    assert!(model.account().unwrap().limits().is_empty());
    let calls = join_all((0..200).map(|_| model.invoke(hello()))).await;
    assert!(calls.iter().all(Result::is_ok));
    assert!(began.elapsed().is_zero(), "{:?}", began.elapsed());
    let section: RateLimitSettings = serde_json::from_str("{}").unwrap();
    for (models, given) in [
        (registry(&["openai"]).rate_limit(section.clone()), true.into()),
        (registry(&["openai"]).rate_limit(section.clone()), section.clone()),
        (registry(&["openai"]), section.clone()),
        (registry(&["openai"]), RateLimitSettings::new()),
        (registry(&["openai"]).rate_limit(true.into()), RateLimitSettings::new()),
    ] {
        let model = models.build().load_model("openai", "a").rate_limit(given).build().unwrap();
        assert_eq!(at_once(&model).await, 60);
        assert_eq!(wait(&model).await, SECOND);
    }
    let on = registry(&["openai"]).rate_limit(section.enabled(true)).build();
    let model = on.load_model("openai", "a").build().unwrap();
    assert_eq!(at_once(&model).await, 60);
}

/// A limit that is set leaves the others to be learned.
#[tokio::test(start_paused = true)]
async fn limits_that_are_not_set_are_learned() {
    let models = registry(&["openai", "anthropic"]).build();
    let tokens = RateLimitSettings::new().tokens_per_minute(1_000_000);
    let model = models.load_model("openai", "a").rate_limit(tokens).build().unwrap();
    assert_eq!(configured(&model), "tokens_per_minute=1000000 burst=1");
    let calls = join_all((0..200).map(|_| model.invoke(hello()))).await;
    assert!(calls.iter().all(Result::is_ok));
    let parts = RateLimitSettings::new().input_tokens_per_minute(600).output_tokens_per_minute(60);
    let model = models.load_model("anthropic", "a").rate_limit(parts).build().unwrap();
    let text = configured(&model);
    assert!(text.starts_with("input_tokens_per_minute=600 output_tokens_per_minute=60"), "{text}");
}

/// A model that only turns limits on shares those of its account, whatever they are.
#[test]
fn switch_alone_is_no_conflict() {
    let log = Log::default();
    let models = registry(&["openai"]).strict().build();
    let load = || models.load_model("openai", "a");
    let first = load().rate_limit(per_minute(120)).build().unwrap();
    let _listening = log.listen();
    let second = load().rate_limit(true).build().unwrap();
    assert!(second.account().unwrap().is_same(first.account().unwrap()));
    assert_eq!(log.lines(), [""; 0]);
    models.clear_buckets();
    load().rate_limit(true).build().unwrap();
    let error = load().rate_limit(per_minute(120)).build().unwrap_err().to_string();
    assert!(error.starts_with("openai already has the limits learned, not requests"), "{error}");
}

fn configured(model: &Model) -> String {
    let limits = model.account().unwrap().limits();
    limits.account_limit().unwrap().0.to_string()
}

/// Limits configured in the registry are not those of the provider.
#[tokio::test(start_paused = true)]
async fn learned_limits_ignore_those_of_the_registry() {
    let models = registry(&["openai"]).rate_limit(limits(1, 1)).build();
    let learned = RateLimitSettings::learned();
    let model = models.load_model("openai", "a").rate_limit(learned).build().unwrap();
    assert_eq!(model.to_string(), "RateLimit(openai/a)");
    assert!(model.account().unwrap().limits().is_empty());
    for _ in 0..100 {
        assert!(wait(&model).await.is_zero());
    }
    models.reconfigure("openai", &Credential::none(), &limits(60, 1)).unwrap();
    assert!(wait(&model).await.is_zero());
    assert_eq!(wait(&model).await, SECOND + SECOND * 16 / 1_000, "1.5 % below the limit");
    models.reconfigure("openai", &Credential::none(), &RateLimitSettings::learned()).unwrap();
    assert!(wait(&model).await.is_zero() && wait(&model).await.is_zero());
}

#[test]
fn invalid_limits_are_rejected_with_key_and_rule() {
    let models = registry(&["openai"]).build();
    for (overrides, key) in [
        (per_minute(0), "requests_per_minute"),
        (per_minute(60).burst(0), "burst_capacity"),
        (per_minute(60).concurrency(0), "max_concurrent_requests"),
        (per_minute(60).tokens_per_minute(1).input_tokens_per_minute(1), "tokens_per_minute"),
    ] {
        let error = models.load_model("openai", "a").rate_limit(overrides).build().unwrap_err();
        assert!(matches!(error, LoadError::Setting { module: "rate_limit", .. }), "{error:?}");
        assert!(error.to_string().contains(&format!(": {key} = ")), "{error}");
    }
    assert_eq!(models.account_count(), 0);
}

#[test]
fn model_that_cannot_be_called_fails_to_load() {
    let http = service_fn(|_: http::Request<Full<Bytes>>| {
        pending::<Result<http::Response<Full<Bytes>>, Infallible>>()
    });
    let models = Models::builder().http(http).build();
    let error = models.load_model("openai", None).build().unwrap_err();
    assert!(matches!(error, LoadError::NoModel(_)), "{error:?}");
    let error = models.load_model("my-vllm", "a").build().unwrap_err();
    assert!(matches!(error, LoadError::NoAddress(_)), "{error:?}");
    let error = models.load_model("openai", "a").fallback(true).build().unwrap_err();
    assert!(matches!(error, LoadError::Setting { module: "fallback", .. }), "{error:?}");
    assert_eq!(models.load_model("gemini", None).build().unwrap().name(), "gemini-2.0-flash");
}

/// A model may be slower than others.
#[tokio::test(start_paused = true)]
async fn attempt_timeout_can_be_set_per_model() {
    let http = service_fn(|_: http::Request<Full<Bytes>>| {
        pending::<Result<http::Response<Full<Bytes>>, Infallible>>()
    });
    let settings = RetrySettings::new().attempt_timeout(SECOND * 9);
    let own = RetrySettings::new().attempt_timeout(SECOND * 3).max_retries(0);
    let profile = Profile::new().credential(Credential::new("sk-1"));
    let models = Models::builder().http(http).provider("openai", profile).retry(settings).build();
    let cases: [(RetrySettings, u32); 2] = [(false.into(), 9), (own, 3)];
    for (retry, seconds) in cases {
        let model = models.load_model("openai", "a").retry(retry).build().unwrap();
        let began = Instant::now();
        let error = model.invoke(hello()).await.unwrap_err();
        assert!(
            matches!(error, CallError::Connection { kind: ConnectionFailure::TimedOut, .. }),
            "{error:?}"
        );
        assert_eq!(began.elapsed(), SECOND * seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn clients_and_semaphores_are_logged_once() {
    let log = Log::default();
    let _listening = log.listen();
    let models = registry(&["openai", "anthropic"]).build();
    let model = models.load_model("openai", "a").rate_limit(true).retry(true).build().unwrap();
    for _ in 0..3 {
        model.invoke(hello()).await.unwrap();
    }
    assert_eq!(
        log.lines(),
        [
            "INFO Created concurrency semaphore for provider 'openai' with limit=8",
            "INFO openai client configured with max_retries=8",
        ]
    );
    for name in ["a", "b", "c"] {
        models.load_model("openai", name).rate_limit(true).build().unwrap();
        models.load_model("anthropic", name).rate_limit(true).build().unwrap();
    }
    let line = "INFO Created concurrency semaphore for provider 'anthropic' with limit=4";
    assert_eq!(log.lines(), [line]);
}
