//! The programs in `docs/from-shared-token-bucket.md`: they compile, they do what the page says, and
//! the page shows them verbatim.
#![allow(missing_docs, unreachable_pub, reason = "the programs are written as users would")]

mod acquire;
mod file;
mod load;

use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::{Engine, MemoryStore};
use tidegate_llm::Chat;
use tidegate_llm::mock::Mock;
use tidegate_llm::models::Models;
use tokio::time::Instant;

use crate::page::{assert_shows, shown_block};

const PAGE: &str = include_str!("../../../docs/from-shared-token-bucket.md");

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_page_shows_the_programs() {
    assert_shows(
        "docs/from-shared-token-bucket.md",
        PAGE,
        &[
            ("from_token_bucket/acquire.rs", include_str!("from_token_bucket/acquire.rs")),
            ("from_token_bucket/load.rs", include_str!("from_token_bucket/load.rs")),
            ("from_token_bucket/file.rs", include_str!("from_token_bucket/file.rs")),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn each_provider_has_a_bucket_and_waiters_keep_their_order() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let buckets = acquire::buckets(&Engine::on(store)).unwrap();
    for _ in 0..60 {
        assert_eq!(acquire::acquire(&buckets, "anthropic").await.unwrap(), Duration::ZERO);
    }
    let waits = (0..3).map(|_| {
        let buckets = buckets.clone();
        tokio::spawn(async move { acquire::acquire(&buckets, "anthropic").await.unwrap() })
    });
    let waits: Vec<_> = waits.collect();
    assert_eq!(acquire::acquire(&buckets, "openai").await.unwrap(), Duration::ZERO);
    for (wait, seconds) in waits.into_iter().zip(1..) {
        assert_eq!(wait.await.unwrap(), SECOND * seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn models_are_stacked_and_share_the_bucket_of_their_provider() {
    let mocks = ["anthropic", "openai"].map(|name| (name, Mock::new(name)));
    let builder = mocks
        .iter()
        .fold(Models::builder(), |builder, (name, mock)| builder.backend(*name, mock.clone()));
    let models = load::registry(builder);
    let loaded = [load::load(&models).unwrap(), load::load(&models).unwrap()];
    assert_eq!(loaded[0].to_string(), "Retry(Fallback(RateLimit(anthropic/claude-sonnet)))");
    let plain = models.load_model("anthropic", "claude-sonnet").build().unwrap();
    assert_eq!(plain.to_string(), "anthropic/claude-sonnet", "off unless asked for");
    let start = Instant::now();
    for number in 0..62 {
        loaded[number % 2].invoke(Chat::user("A river?")).await.unwrap();
    }
    assert_eq!(start.elapsed(), SECOND, "60 at once, then two a second");
    models.clear_buckets();
    let fresh = load::load(&models).unwrap();
    fresh.invoke(Chat::user("A river?")).await.unwrap();
    assert_eq!(start.elapsed(), SECOND, "a full bucket");
}

/// The file of the page, as it stands.
#[tokio::test(start_paused = true)]
async fn the_file_of_the_page_sets_the_limits() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("config.toml");
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        file::registry(&path).unwrap().backend("anthropic", Mock::new("anthropic")).build()
    };
    let section = shown_block(PAGE, "toml");
    let models = load(section);
    let off = models.load_model("anthropic", "claude-sonnet").build().unwrap();
    assert_eq!(off.to_string(), "anthropic/claude-sonnet");
    let model = models.load_model("anthropic", "claude-sonnet").rate_limit(true).build().unwrap();
    assert_eq!(model.to_string(), "RateLimit(anthropic/claude-sonnet)");
    let start = Instant::now();
    for _ in 0..61 {
        model.invoke(Chat::user("A river?")).await.unwrap();
    }
    assert_eq!(start.elapsed(), SECOND, "60 at once, then one a second");
    let on = load(&section.replace("false", "true"));
    let model = on.load_model("anthropic", "claude-sonnet").build().unwrap();
    assert_eq!(model.to_string(), "RateLimit(anthropic/claude-sonnet)");
    let without = load("");
    let learned = without.load_model("anthropic", "a").rate_limit(true).build().unwrap();
    assert!(learned.account().unwrap().limits().is_empty(), "learned");
}
