//! What models of one provider share: one account for each credential.

use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use futures_util::future::join_all;
use tidegate_llm::mock::Mock;
use tidegate_llm::models::{LoadError, Models};
use tidegate_providers::Credential;
use tokio::time::{Instant, advance};
use tower::{Service as _, service_fn};

use crate::log::Log;

use super::{SECOND, at_once, hello, limits, per_minute, registry, wait};

#[test]
fn thousand_threads_loading_a_provider_share_one_account() {
    let models = registry(&["openai"]).build();
    let start = Barrier::new(1_000);
    let accounts: Vec<_> = thread::scope(|scope| {
        let load = || {
            start.wait();
            let model = models.load_model("openai", "gpt-4o").rate_limit(true).build().unwrap();
            model.account().unwrap().clone()
        };
        let threads: Vec<_> = (0..1_000).map(|_| scope.spawn(load)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(accounts.iter().all(|account| account.is_same(&accounts[0])));
    assert_eq!(models.account_count(), 1);
}

/// Accounts depend on the normalised provider name and the key, not on the model.
#[test]
fn account_depends_on_provider_and_key_only() {
    let models = registry(&["openai", "anthropic"]).build();
    let account = |provider: &str, model: &str| {
        let model = models.load_model(provider, model).rate_limit(true).build().unwrap();
        model.account().unwrap().clone()
    };
    assert!(account("openai", "a").is_same(&account(" OpenAI ", "b")));
    assert!(!account("openai", "a").is_same(&account("anthropic", "a")));
    assert_eq!(models.account_count(), 2);
    let known = models.account("openai", &Credential::none()).unwrap();
    assert!(known.is_same(&account("openai", "c")));
    assert!(models.account("groq", &Credential::none()).is_none());
}

/// R33: the name that counts is the one under which the model was loaded, whatever the service
/// behind it calls itself later.
#[tokio::test(start_paused = true)]
async fn service_that_changes_its_name_keeps_its_bucket() {
    let name = Arc::new(Mutex::new("openai"));
    let inner = service_fn({
        let name = name.clone();
        move |call| Mock::new(*name.lock().unwrap()).call(call)
    });
    let models = Models::builder().backend("openai", inner).rate_limit(limits(60, 2)).build();
    let load = || models.load_model("openai", "a").rate_limit(true).build().unwrap();
    let model = load();
    assert!(wait(&model).await.is_zero());
    *name.lock().unwrap() = "groq";
    assert!(wait(&model).await.is_zero());
    assert_eq!(wait(&model).await, SECOND);
    assert_eq!(wait(&load()).await, SECOND, "models that are loaded later share it");
    assert_eq!((model.provider().as_str(), models.account_count()), ("openai", 1));
    assert!(models.account("groq", &Credential::none()).is_none());
}

#[tokio::test(start_paused = true)]
async fn exhausted_provider_does_not_affect_others() {
    let models = registry(&["openai", "anthropic"]).rate_limit(limits(60, 3)).build();
    let load = |name: &str| models.load_model(name, "a").rate_limit(true).build().unwrap();
    let (anthropic, openai) = (load("anthropic"), load("openai"));
    assert_eq!(at_once(&anthropic).await, 3);
    assert_eq!(at_once(&openai).await, 3);
}

#[tokio::test(start_paused = true)]
async fn each_key_of_a_provider_has_its_own_bucket() {
    let models = registry(&["openai"]).rate_limit(limits(60, 3)).build();
    let load = |key: &str| {
        let loader = models.load_model("openai", "a").credential(Credential::new(key));
        loader.rate_limit(true).build().unwrap()
    };
    let (one, other, same) = (load("sk-1"), load("sk-2"), load("sk-1"));
    assert_eq!(at_once(&one).await, 3);
    assert!(!wait(&same).await.is_zero(), "the same key has the same bucket");
    assert_eq!(at_once(&other).await, 3);
    assert_eq!(models.account_count(), 2);
}

/// A hundred models at 60 per minute share 60 per minute, not 6,000.
#[tokio::test(start_paused = true)]
async fn models_of_a_provider_share_its_limit() {
    for burst in [1, 60] {
        let models = registry(&["mock"]).rate_limit(limits(60, burst)).build();
        let load = |_| models.load_model("mock", "a").rate_limit(true).build().unwrap();
        let loaded: Vec<_> = (0..100).map(load).collect();
        let start = Instant::now();
        let times = join_all(loaded.iter().map(|model| async move {
            let mut times = Vec::new();
            for _ in 0..3 {
                model.invoke(hello()).await.unwrap();
                times.push(start.elapsed());
            }
            times
        }));
        let mut times = times.await.concat();
        times.sort_unstable();
        assert_eq!(times.len(), 300);
        let most = usize::try_from(if burst == 1 { 60 } else { 60 + burst }).unwrap();
        for window in times.windows(most + 1) {
            let span = *window.last().unwrap() - window[0];
            assert!(span >= SECOND * 60, "{span:?} for {} calls", most + 1);
        }
        assert_eq!(*times.last().unwrap(), SECOND * (300 - burst), "no quota is wasted");
    }
}

#[tokio::test(start_paused = true)]
async fn first_model_sets_the_limits_and_conflicts_are_logged_once() {
    let log = Log::default();
    let _listening = log.listen();
    let models = registry(&["openai"]).rate_limit(limits(60, 5)).build();
    models.load_model("openai", "a").rate_limit(true).build().unwrap();
    log.lines();
    let other = || models.load_model("openai", "a").rate_limit(per_minute(120)).build().unwrap();
    let later = [other(), other(), other()];
    assert_eq!(
        log.lines(),
        ["WARN account already has other rate limits; use `Models::reconfigure` to change them \
          provider=openai limits=\"requests_per_minute=60 burst=5\" \
          ignored=\"requests_per_minute=120 burst=5\""]
    );
    assert_eq!(at_once(&later[0]).await, 5);
    assert_eq!(wait(&later[1]).await, SECOND, "sixty a minute");
}

#[tokio::test(start_paused = true)]
async fn strict_registry_rejects_conflicting_limits_with_both_values() {
    let models = registry(&["openai"]).rate_limit(limits(60, 5)).strict().build();
    let model = models.load_model("openai", "a").rate_limit(true).build().unwrap();
    let error = models.load_model("openai", "b").rate_limit(per_minute(120)).build().unwrap_err();
    assert!(matches!(error, LoadError::Conflict { .. }), "{error:?}");
    let text = "openai already has the limits requests_per_minute=60 burst=5, \
                not requests_per_minute=120 burst=5: use `Models::reconfigure` to change them";
    assert_eq!(error.to_string(), text);
    models.load_model("openai", "b").rate_limit(per_minute(60)).build().unwrap();
    assert_eq!(at_once(&model).await, 5);
}

#[tokio::test(start_paused = true)]
async fn reconfigure_changes_limits_of_loaded_models() {
    let models = registry(&["openai"]).rate_limit(limits(1, 1)).strict().build();
    let model = models.load_model("openai", "a").rate_limit(true).build().unwrap();
    assert!(wait(&model).await.is_zero());
    let waiting = tokio::spawn({
        let model = model.clone();
        async move { wait(&model).await }
    });
    advance(SECOND * 2).await;
    assert!(!waiting.is_finished(), "one a minute");
    models.reconfigure("openai", &Credential::none(), &limits(600, 1)).unwrap();
    let waited = waiting.await.unwrap();
    assert!(waited < SECOND * 3, "{waited:?}");
    assert_eq!(wait(&model).await, SECOND / 10);
    // Loading with the current limits is not a conflict.
    models.load_model("openai", "b").rate_limit(per_minute(600)).build().unwrap();
}

#[tokio::test(start_paused = true)]
async fn cleared_accounts_start_with_full_buckets() {
    let clear: [fn(&Models); 2] = [Models::clear_buckets, Models::clear_cache];
    for clear in clear {
        let models = registry(&["openai"]).rate_limit(limits(60, 3)).build();
        let load = || models.load_model("openai", "a").rate_limit(true).build().unwrap();
        let before = load();
        assert_eq!(at_once(&before).await, 3);
        clear(&models);
        assert_eq!(models.account_count(), 0);
        let after = load();
        assert!(!after.account().unwrap().is_same(before.account().unwrap()));
        assert_eq!(at_once(&after).await, 3);
    }
}
