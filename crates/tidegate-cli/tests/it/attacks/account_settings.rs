//! Settings that bound what keys of callers may use. Older programs do not know them.

use super::stage::{Caller, LOCALHOST, Program, Upstream, small_answer};

/// The statuses of a call by each of so many keys, none of which waits, and what bound the last.
fn calls(settings: &str, keys: usize) -> (Vec<u16>, Option<String>) {
    let upstream = Upstream::start(|_| small_answer());
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
fn all_keys_together_make_so_many_requests() {
    let settings = "requests_per_minute = 6\n\
                    [providers.openai.all_keys]\nrequests_per_minute = 12";
    let (statuses, limited_by) = calls(settings, 4);
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(limited_by.as_deref(), Some("all_keys_requests"));
}

/// Setting: providers.*.all_keys.tokens_per_minute
#[test]
fn all_keys_together_use_so_many_tokens() {
    // The calls reserve 900 tokens each, and use two.
    let settings = "[providers.openai.all_keys]\ntokens_per_minute = 1";
    let (statuses, limited_by) = calls(settings, 3);
    assert_eq!(statuses, [200, 429, 429]);
    assert_eq!(limited_by.as_deref(), Some("all_keys_tokens"));
}

/// Keys that have spent what they may are kept; those for which there is no room share one account.
///
/// Setting: gateway.max_memory
#[test]
fn keys_beyond_the_memory_of_the_gateway_share_an_account() {
    let settings = "requests_per_minute = 1\n\
                    [providers.openai.all_keys]\nrequests_per_minute = 100000\n\
                    [gateway]\nmax_memory = \"1MiB\"";
    let (statuses, _) = calls(settings, 200);
    let passed = statuses.iter().filter(|status| **status == 200).count();
    assert!((20..150).contains(&passed), "{passed} of 200");
}
