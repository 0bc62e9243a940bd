//! Exact log lines.

use tidegate_core::breaker::BreakerSettings;
use tidegate_llm::breaker::{BreakerLayer, Circuit};
use tidegate_llm::fallback::FallbackLayer;
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::{Call, CallError, ConnectionFailure};
use tidegate_providers::{Chat, Class};
use tokio::time::advance;
use tower::Layer as _;

use crate::tests::log::Log;

use super::{
    SECOND, Script, ask, connection_failure, failed, hello, rate_limited, rate_limited_for,
};

fn exact(retries: u32) -> RetryLayer {
    RetryLayer::new("openai").jitter_percent(0).max_retries(retries)
}

#[tokio::test(start_paused = true)]
async fn number_of_retries_is_logged_once_per_client() {
    let log = Log::default();
    let _listening = log.listen();
    let layer = RetryLayer::new("OpenAI");
    let services = [(); 3].map(|()| layer.layer(Script::failing(0, rate_limited)));
    for service in services {
        ask(&service, hello()).await.unwrap();
    }
    assert_eq!(log.lines(), ["INFO openai client configured with max_retries=8"]);
}

#[tokio::test(start_paused = true)]
async fn each_rate_limit_hit_and_the_recovery_are_logged() {
    let log = Log::default();
    let _listening = log.listen();
    let script = Script::new(|before, _| match before {
        0 => Err(rate_limited()),
        1 => Err(rate_limited_for(7)),
        2 => Err(connection_failure(ConnectionFailure::TimedOut)),
        _ => Ok("answer"),
    });
    let layer = exact(8).function("summarise");
    layer.log_configured();
    log.lines();
    ask(&layer.layer(script.clone()), hello()).await.unwrap();
    assert_eq!(
        log.lines(),
        [
            "WARN Rate limit hit (attempt 1/9), backing off for 1.000s (function: summarise): openai answered 429",
            "WARN Rate limit hit (attempt 2/9), backing off for 7.000s (function: summarise): openai answered 429",
            "WARN Call failed (attempt 3/9), backing off for 4.000s (function: summarise): openai did not answer in time",
            "INFO Rate limit recovered after 3 retries (function: summarise)",
        ]
    );
    assert_eq!(script.times(), [0.0, 1.0, 8.0, 12.0]);
}

#[tokio::test(start_paused = true)]
async fn logged_delay_is_the_actual_delay() {
    let log = Log::default();
    let _listening = log.listen();
    let script = Script::failing(8, rate_limited);
    let layer = RetryLayer::new("openai");
    log.lines();
    ask(&layer.layer(script.clone()), hello()).await.unwrap();
    let mut logged = Vec::new();
    for line in log.lines().iter().filter(|line| line.starts_with("WARN")) {
        let (_, rest) = line.split_once("backing off for ").unwrap();
        logged.push(rest.split_once("s (").unwrap().0.parse::<f64>().unwrap());
    }
    let times = script.times();
    let slept: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(logged.len(), 8);
    for (logged, slept) in logged.iter().zip(&slept) {
        assert!((logged - slept).abs() < 0.000_1, "{logged} {slept}");
    }
}

#[tokio::test(start_paused = true)]
async fn giving_up_is_logged_with_the_last_error() {
    let log = Log::default();
    let _listening = log.listen();
    let spent = exact(8).budget(0);
    let layers = [exact(1), spent, exact(8).deadline(SECOND), exact(8)];
    layers.iter().for_each(RetryLayer::log_configured);
    log.lines();
    let failing: [fn() -> CallError; 4] =
        [rate_limited, rate_limited, || failed(Class::Transient), || rate_limited_for(9_999)];
    let mut errors = Vec::new();
    for (layer, error) in layers.iter().zip(failing) {
        let _ = ask(&layer.layer(Script::new(move |_, _| Err(error()))), hello()).await;
        errors.extend(log.lines().into_iter().filter(|line| line.starts_with("ERROR")));
    }
    assert_eq!(
        errors,
        [
            "ERROR Gave up (attempt 2/2), no attempts left (function: openai): openai answered 429",
            "ERROR Gave up (attempt 1/9), the retry budget is spent (function: openai): openai answered 429",
            "ERROR Gave up (attempt 1/9), no time left for another attempt (function: openai): openai answered 503",
            "ERROR Gave up (attempt 1/9), the provider asks for too long a delay (function: openai): openai answered 429",
        ]
    );
    let wrong = Script::failing(1, || failed(Class::BadRequest));
    ask(&layers[3].layer(wrong.clone()), hello()).await.unwrap_err();
    assert_eq!(log.lines(), [""; 0], "a bad request is reported by its caller");
}

#[tokio::test]
async fn each_fallback_is_logged() {
    let log = Log::default();
    let _listening = log.listen();
    let broken = Script::failing(9, || connection_failure(ConnectionFailure::NotConnected));
    let full = Script::failing(9, || failed(Class::ExhaustedQuota { after: None }));
    let layer = FallbackLayer::new("openai", [("groq", full), ("gemini", broken)]).unwrap();
    let call = Call::new(Chat::user("a secret"));
    ask(&layer.layer(Script::failing(9, rate_limited)), call).await.unwrap_err();
    assert_eq!(
        log.lines(),
        [
            "WARN falling back from=openai to=groq class=\"rate_limited\" error=openai answered 429",
            "WARN falling back from=groq to=gemini class=\"long_quota\" error=openai answered 429",
            "WARN no fallback succeeded provider=openai last=gemini class=\"transient\" error=openai cannot be reached",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn opening_and_closing_of_a_breaker_are_logged_once() {
    let log = Log::default();
    let _listening = log.listen();
    let script = Script::failing(2, || failed(Class::Overloaded));
    let circuit = Circuit::new("openai", BreakerSettings::after_failures(2));
    let service = BreakerLayer::new(circuit).layer(script.clone());
    for _ in 0..10 {
        ask(&service, hello()).await.unwrap_err();
    }
    advance(SECOND * 5).await;
    for _ in 0..10 {
        ask(&service, hello()).await.unwrap();
    }
    assert_eq!(
        log.lines(),
        [
            "WARN breaker opened scope=\"openai\" open_for_ms=5000 error=openai answered 503",
            "INFO breaker closed scope=\"openai\"",
        ]
    );
}
