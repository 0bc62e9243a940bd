//! Retry hints of callers that are denied together.

use std::fs;

use serde_json::{Value, json};

use crate::program::{Serving, serve};

/// Milliseconds per day, the refill time of a token.
const DAY: u64 = 86_400_000;

const TAKE: &str = r#"{"key":"alice","limit":"api"}"#;

/// Returns the retry hint of a response.
fn hint(answer: &Value) -> u64 {
    answer["retry_after_ms"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

fn denied(serving: &Serving, path: &str, body: &str) -> u64 {
    let (status, answer) = serving.post(path, body);
    assert_eq!(status, 429, "{answer}");
    hint(&serde_json::from_str(&answer).unwrap())
}

/// Returns the range of hints. Checks that none is shorter than the exact hint or longer by more
/// than a fifth.
fn spread(hints: &[u64], exact: u64) -> u64 {
    let (least, most) = (hints.iter().min().unwrap(), hints.iter().max().unwrap());
    assert!(*least >= exact && *most <= DAY + DAY / 5, "{least} to {most} for {exact}");
    most - least
}

/// G9: hints vary by at least a tenth, and are exact by default.
///
/// Setting: api.jitter_percent
#[test]
fn retry_hints_have_the_configured_jitter() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("tidegate.toml");
    fs::write(file, "[limits.api]\ncapacity = 1\nrate = \"1/day\"\n").unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    assert_eq!(serving.post("/v1/take", TAKE).0, 200);
    let takes = || (0..40).map(|_| denied(&serving, "/v1/take", TAKE)).collect::<Vec<_>>();
    let exact = takes();
    assert!(
        exact.is_sorted_by(|earlier, later| earlier >= later),
        "exact hints only decrease: {exact:?}"
    );
    let (status, body) = serving.patch(&json!({"api": {"jitter_percent": 20}}));
    assert_eq!(status, 200, "{body}");
    let spread_out = takes();
    let operation = json!({"op": "take", "key": "alice", "limit": "api"});
    let batch = json!({"operations": vec![operation; 40]}).to_string();
    let (_, answer) = serving.post("/v1/batch", &batch);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let batched: Vec<_> = answer["answers"].as_array().unwrap().iter().map(hint).collect();
    let reserve = r#"{"key":"alice","limit":"api","max_wait_ms":0}"#;
    let reserves: Vec<_> = (0..40).map(|_| denied(&serving, "/v1/reserve", reserve)).collect();
    // A peek reports the exact state of the bucket.
    let looks: Vec<_> = (0..10).map(|_| denied(&serving, "/v1/peek", TAKE)).collect();
    assert!(looks.is_sorted_by(|earlier, later| earlier >= later), "{looks:?}");
    let now = *looks.last().unwrap();
    for hints in [spread_out, batched, reserves] {
        assert!(spread(&hints, now) >= DAY / 10, "{hints:?}");
    }
    let (status, body) = serving.patch(&json!({"api": {"jitter_percent": 101}}));
    assert_eq!((status, body.contains("between 0 and 100")), (422, true), "{body}");
}
