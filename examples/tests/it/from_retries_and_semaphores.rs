//! The programs in `docs/from-retries-and-semaphores.md`: they do what the page says, and it shows
//! them verbatim.
#![allow(missing_docs, unreachable_pub, reason = "the programs are written as users would")]

mod models;
mod retries;

use std::cell::Cell;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_config::Environment;
use tidegate_llm::Chat;
use tidegate_llm::mock::{Mock, Step};
use tokio::time::Instant;

use crate::page::{assert_shows, shown_block};

const PAGE: &str = include_str!("../../../docs/from-retries-and-semaphores.md");

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_page_shows_the_programs() {
    assert_shows(
        "docs/from-retries-and-semaphores.md",
        PAGE,
        &[
            (
                "from_retries_and_semaphores/models.rs",
                include_str!("from_retries_and_semaphores/models.rs"),
            ),
            (
                "from_retries_and_semaphores/retries.rs",
                include_str!("from_retries_and_semaphores/retries.rs"),
            ),
        ],
    );
}

/// Calls a function that fails with this status, and returns how often and for how long.
async fn attempts(provider: &str, status: u16) -> (u32, Duration) {
    let (calls, start) = (Cell::new(0), Instant::now());
    let call = || {
        calls.set(calls.get() + 1);
        async { Err::<(), _>(retries::HttpError { status }) }
    };
    retries::with_retries(provider, "extract_concepts", call).await.unwrap_err();
    (calls.get(), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn any_function_is_retried_as_the_page_says() {
    for (provider, retries, most) in [("openai", 8, 183), ("anthropic", 8, 183), ("ollama", 3, 4)] {
        for status in [429, 500, 502, 503, 529] {
            let (calls, time) = attempts(provider, status).await;
            assert_eq!(calls, retries + 1, "{provider} {status}");
            assert!(time <= SECOND * most && time >= SECOND * most / 4, "{provider}: {time:?}");
        }
        for status in [400, 401, 403, 404, 413] {
            assert_eq!(attempts(provider, status).await, (1, Duration::ZERO), "{status}");
        }
    }
}

/// Makes 40 calls of a second at once, and returns how many are in flight together.
async fn in_flight(file: &str, variables: &[(&str, &str)], provider: &str) -> usize {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("providers.toml");
    std::fs::write(&path, file).unwrap();
    let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let environment: Environment = variables.collect();
    let slow = Mock::new(provider).always(Step::reply("yes").after(SECOND));
    let registry = models::registry(&path, environment).unwrap().backend(provider, slow).build();
    let model = registry.load_model(provider, "any").build().unwrap();
    let start = Instant::now();
    let calls = (0..40).map(|_| async {
        model.invoke(Chat::user("A river?")).await.unwrap();
        start.elapsed()
    });
    join_all(calls).await.into_iter().filter(|end| *end == SECOND).count()
}

#[tokio::test(start_paused = true)]
async fn concurrency_is_that_of_the_environment_over_the_file() {
    let file = shown_block(PAGE, "toml");
    assert_eq!(in_flight(file, &[], "openai").await, 8);
    assert_eq!(in_flight(file, &[], "anthropic").await, 4);
    assert_eq!(in_flight(file, &[], "ollama").await, 1);
    let variables = [("OPENAI_MAX_CONCURRENT", "6")];
    assert_eq!(in_flight(file, &variables, "openai").await, 6);
    assert_eq!(in_flight("", &variables, "openai").await, 6, "no file is necessary");
    let bounded = [("OPENAI_MAX_CONCURRENT", "100")];
    assert_eq!(in_flight(file, &bounded, "openai").await, 32, "capped");
    let raised = [("OPENAI_MAX_CONCURRENT", "36"), ("MAX_CONCURRENT_THREADS", "64")];
    assert_eq!(in_flight(file, &raised, "openai").await, 36);
}
