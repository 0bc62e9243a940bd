//! Settings that limit what callers' keys may use. Older versions do not have them.

use super::fixtures::{Caller, LOCALHOST, Program, Upstream, small_response};

/// Makes one call with each of `keys` keys, without waiting. Returns the statuses and the limit
/// that rejected the last call.
fn calls(settings: &str, keys: usize) -> (Vec<u16>, Option<String>) {
    let upstream = Upstream::start(|_| small_response());
    let text = format!("[providers.openai]\nbase_url = \"{}\"\n{settings}\n", upstream.url);
    let program = Program::start(&text);
    let mut caller = Caller::at(program.http, LOCALHOST);
    let mut limited_by = None;
    let statuses = (0..keys).map(|key| {
        let key = format!("Bearer sk-{key}");
        let headers = [
            ("authorization", key.as_str()),
            ("content-type", "application/json"),
            ("x-tidegate-max-wait-ms", "0"),
        ];
        let body = r#"{"model":"m","max_tokens":900,"messages":[{"role":"user","content":"hi"}]}"#;
        let answer =
            caller.request("POST", "/openai/v1/chat/completions", &headers, body.as_bytes());
        limited_by = answer.header("x-tidegate-limited-by").map(ToOwned::to_owned);
        answer.status()
    });
    (statuses.collect(), limited_by)
}

/// Setting: providers.*.all_keys.requests_per_minute
#[test]
fn all_keys_share_a_request_limit() {
    let settings = "requests_per_minute = 6\n\
                    [providers.openai.all_keys]\nrequests_per_minute = 12";
    let (statuses, limited_by) = calls(settings, 4);
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(limited_by.as_deref(), Some("all_keys_requests"));
}

/// Setting: providers.*.all_keys.tokens_per_minute
#[test]
fn all_keys_share_a_token_limit() {
    // Each call reserves 900 tokens and uses two.
    let settings = "[providers.openai.all_keys]\ntokens_per_minute = 1";
    let (statuses, limited_by) = calls(settings, 3);
    assert_eq!(statuses, [200, 429, 429]);
    assert_eq!(limited_by.as_deref(), Some("all_keys_tokens"));
}

/// Exhausted keys are kept; keys that do not fit into memory share one account.
///
/// Setting: gateway.max_memory
#[test]
fn keys_beyond_the_gateway_memory_share_an_account() {
    let settings = "requests_per_minute = 1\n\
                    [providers.openai.all_keys]\nrequests_per_minute = 100000\n\
                    [gateway]\nmax_memory = \"1MiB\"";
    let (statuses, _) = calls(settings, 200);
    let passed = statuses.iter().filter(|status| **status == 200).count();
    assert!((20..150).contains(&passed), "{passed} of 200");
}
