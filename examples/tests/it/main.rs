//! Every example runs to its end and prints what its documentation says, and the programs in the
//! documents compile.

#![expect(clippy::unwrap_used, reason = "unwrap fails the test")]

mod from_admission;
mod from_governor;
mod from_pipeline_limits;
mod from_retries_and_semaphores;
mod from_token_bucket;
mod from_websocket_middleware;
mod page;
mod websockets;

use std::process::Command;

use tidegate_testkit::launch::{Flavor, RedisServer};

/// The output of a program.
fn shown(program: &str) -> String {
    shown_with(program, &[])
}

/// The output of a program with arguments.
fn shown_with(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the example starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} failed: {errors}");
    String::from_utf8(output.stdout).expect("an example prints text")
}

fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else {
            panic!("{part:?} is missing, or too early, in:\n{text}");
        };
        rest = after;
    }
}

#[test]
fn each_client_has_its_own_bucket() {
    let text = shown(env!("CARGO_BIN_EXE_keyed"));
    assert_in_order(
        &text,
        &[
            "alice: allowed, 2 left",
            "alice: allowed, 0 left",
            "alice: denied, again in ",
            "bob: allowed, 2 left",
            "carol: a cost of 2, 1 left",
            "carol: a cost of 4 is denied: Some(Never)",
            "dave: 2 of 3 given back, 2 left",
        ],
    );
}

#[test]
fn threads_decide_and_wait_without_a_runtime() {
    let text = shown(env!("CARGO_BIN_EXE_sync"));
    assert_in_order(&text, &["10 of 20 decisions allowed", "the second report may not go: "]);
    assert_eq!(text.matches("a worker waited ").count(), 5, "{text}");
}

#[test]
fn a_custom_store_counts_denials() {
    let text = shown(env!("CARGO_BIN_EXE_own-store"));
    assert_in_order(
        &text,
        &["alice: allowed", "alice: allowed", "alice: denied", "3 denied in all"],
    );
}

#[test]
fn buckets_in_a_database_limit_and_refuse_the_rest() {
    let text = shown(env!("CARGO_BIN_EXE_own-buckets"));
    assert_in_order(
        &text,
        &[
            "alice: allowed",
            "alice: allowed",
            "alice: denied",
            "0 rows deleted",
            "cannot decide a policy that is not a token bucket",
            "cannot hold a key",
            "alice: 2 left",
        ],
    );
}

#[test]
fn the_axum_app_answers_until_its_limits_are_reached() {
    let text = shown(env!("CARGO_BIN_EXE_axum-app"));
    assert_in_order(
        &text,
        &[
            "GET / as alice: 200 OK",
            "ratelimit-policy: \"all\";q=4;w=24",
            "ratelimit: \"all\";r=3;t=6",
            "GET / as alice: 429 Too Many Requests",
            "retry-after: 6",
            "quota-exceeded",
            "GET /search/tides as alice: 200 OK",
            "ratelimit-policy: \"search\";q=2;w=60",
            "found something; 1 searches left",
            "GET /search/tides as alice: 429 Too Many Requests",
            "GET /search/tides as bob: 200 OK",
        ],
    );
}

#[test]
fn the_tonic_service_tells_its_client_when_to_retry() {
    let text = shown(env!("CARGO_BIN_EXE_tonic-service"));
    assert_in_order(&text, &["call 1: status 1", "call 3: status 1", "call 4: ResourceExhausted"]);
    assert!(text.contains("come back in"), "{text}");
}

#[test]
fn the_chat_limits_users_rooms_and_types() {
    let text = shown(env!("CARGO_BIN_EXE_chat"));
    assert_chat(&text, "alice Say 1: {\"type\":\"Delivered\"}");
}

#[test]
fn chat_servers_on_one_redis_share_their_limits() {
    let redis = RedisServer::start(Flavor::Redis);
    let text = shown_with(env!("CARGO_BIN_EXE_chat"), &[&redis.url()]);
    assert_chat(&text, "alice Say 1: {\"type\":\"ERROR\"");
}

#[test]
fn the_chat_reports_an_invalid_redis_url() {
    let program = env!("CARGO_BIN_EXE_chat");
    let output = Command::new(program).arg("redis://:hunter2@").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("\"redis://:***@\" is not usable: the host is missing"), "{errors}");
}

fn assert_chat(text: &str, elsewhere: &str) {
    assert_in_order(
        text,
        &[
            "alice Say 5: {\"type\":\"Delivered\"}",
            "alice Say 6: {\"type\":\"ERROR\",\"payload\":{\"code\":\"RESOURCE_EXHAUSTED\"",
            "alice goes to the second server",
            elsewhere,
            "bob Say 1: {\"type\":\"Delivered\"}",
            "bob Image 2: {\"type\":\"Delivered\"}",
            "bob Image 3: {\"type\":\"ERROR\",\"payload\":{\"code\":\"RESOURCE_EXHAUSTED\"",
            "carol Typing 1: {\"type\":\"Delivered\"}",
            "carol Typing 3: {\"type\":\"ERROR\",\"payload\":{\"code\":\"RESOURCE_EXHAUSTED\"",
        ],
    );
}

#[test]
fn one_provider_shows_what_calls_wait_for() {
    let text = shown(env!("CARGO_BIN_EXE_one-provider"));
    assert_in_order(
        &text,
        &[
            "loaded Retry(RateLimit(openai/gpt-4o))",
            "call 1, whole\n   \"",
            "call 4, whole\n   waited ",
            " s for its turn (requests)",
            "call 5, streamed",
            " pieces",
            "call 6, refused once",
            "attempt 1 failed (rate_limited), the next one in ",
            "   answered",
        ],
    );
}

#[test]
fn the_second_provider_answers_when_the_first_does_not() {
    let text = shown(env!("CARGO_BIN_EXE_fallback"));
    assert_in_order(
        &text,
        &[
            "loaded Retry(Fallback(RateLimit(openai/gpt-4o)))",
            "all is well: openai answers",
            "the first is overloaded: anthropic answers",
            "it has recovered: openai answers",
            "the first has no credit left: anthropic answers",
            "it still has none: anthropic answers",
            "the first was asked 4 times",
            "the second was asked 3 times",
        ],
    );
}

#[test]
fn a_batch_is_paced_and_no_call_fails() {
    let text = shown(env!("CARGO_BIN_EXE_batch"));
    assert_in_order(
        &text,
        &["500 of 500 prompts answered, 0 failed", " s in all", "429", " tokens"],
    );
    // With a burst of two and 35 per second it cannot take less, unless calls are not paced.
    let seconds = text.lines().find_map(|line| line.split_once(" s in all")).unwrap().0;
    assert!(seconds.parse::<f64>().unwrap() > 14.0, "{text}");
}

#[test]
fn a_hundred_calls_keep_to_the_limits() {
    let text = shown(env!("CARGO_BIN_EXE_hundred-calls"));
    assert_in_order(&text, &["100 of 100 calls answered in ", " s, ", " tokens"]);
    // With a burst of fifty and ten per second it cannot take less, unless calls are not paced.
    let (_, rest) = text.split_once("answered in ").unwrap();
    let (seconds, _) = rest.split_once(" s, ").unwrap();
    assert!(seconds.parse::<f64>().unwrap() > 4.5, "{text}");
}

#[test]
fn the_planner_shows_which_limits_apply_and_why() {
    let text = shown(env!("CARGO_BIN_EXE_planner"));
    assert_in_order(
        &text,
        &[
            "a tier: requests_per_minute=2000 input_tokens_per_minute=3000000 \
             requests_per_day=100000 requests_per_day_zone=America/Los_Angeles burst=1 (capability)",
            "no tier: requests_per_minute=10 input_tokens_per_minute=250000 burst=1 (capability)",
            "a model without a row: requests_per_minute=10 burst=1 (default)",
            "another provider: requests_per_minute=500 tokens_per_minute=30000 burst=1 (tier)",
            "limits of our own: requests_per_minute=120 burst=1 (override)",
            "a tier that is not known: tier = \"gold\": is not a tier of gemini; known tiers are \
             free, tier_1, tier_2, tier_3",
            "ann: ",
            "bob: ",
            "ann: ",
        ],
    );
}
