//! Leaks: a provider's configured key, one caller's error in the response to another, and actions
//! without an audit trail.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::fixtures::{
    Caller, LOCALHOST, Message, Program, Upstream, UpstreamResponse, small_response,
};

/// The operator's key, which the program adds to requests.
const KEY: &str = "sk-operator-0123456789abcdef";
/// The key of the fallback provider.
const OTHER_KEY: &str = "other-operator-9876543210fedcba";

/// Provider names, each with the path of a call.
const DIALECTS: [(&str, &str); 3] = [
    ("openai", "/openai/v1/chat/completions"),
    ("anthropic", "/anthropic/v1/messages"),
    ("gemini", "/gemini/v1beta/models/m:generateContent"),
];

const CHAT: &[u8] = br#"{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"hi"}]}"#;

/// Returns a configuration of providers with the operator's key.
fn own_keys(upstream: &Upstream, rest: &str) -> String {
    DIALECTS.iter().fold(String::new(), |text, (name, _)| {
        let url = &upstream.url;
        text + &format!(
            "[providers.{name}]\nbase_url = \"{url}\"\napi_key_env = \"OPERATOR_KEY\"\n{rest}\n"
        )
    })
}

fn start(config: &str) -> Program {
    Program::start_with(config, |command: &mut Command| {
        command.env("OPERATOR_KEY", KEY).env("OTHER_KEY", OTHER_KEY);
    })
}

/// Returns a body that reflects the headers of a request.
fn reflection(request: &Message) -> String {
    let headers = request.headers.iter().map(|(name, value)| format!("{name}: {value}\\n"));
    format!("{{\"error\":{{\"message\":\"{}\"}}}}", headers.collect::<String>())
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Returns whether any part of a response contains a key.
fn shows(response: &Message, key: &str) -> bool {
    let headers = response.headers.iter().map(|(name, value)| format!("{name}: {value}"));
    let text = headers.collect::<String>() + &response.start + &response.text();
    text.to_ascii_lowercase().contains(key)
}

/// Returns the key of a request, from any header.
fn received_key(request: &Message) -> &str {
    ["authorization", "x-api-key", "x-goog-api-key"]
        .into_iter()
        .find_map(|name| request.header(name))
        .unwrap_or_default()
}

/// Point 9: these methods make a server reflect what it received.
#[test]
fn methods_that_reflect_or_tunnel_do_not_reach_a_provider() {
    let upstream = Upstream::start(|request| UpstreamResponse::json(200, &reflection(request)));
    let program = start(&own_keys(&upstream, ""));
    let methods = ["TRACE", "CONNECT", "trace", "Connect", "TRACK", "DEBUG"];
    for (method, (_, path)) in methods.iter().flat_map(|method| DIALECTS.map(|it| (method, it))) {
        let mut caller = Caller::at(program.http, LOCALHOST);
        let host = program.http;
        caller
            .write(format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes())
            .unwrap();
        let refused = caller.read().unwrap().unwrap();
        assert_eq!(refused.status(), 405, "{method} {path}: {refused:?}");
        assert!(refused.header("allow").unwrap().contains("POST"), "{refused:?}");
        assert!(!shows(&refused, KEY));
    }
    let authority = upstream.url.strip_prefix("http://").unwrap();
    for (listener, target) in [
        (program.http, authority.to_owned()),
        (program.http, format!("{}", program.http)),
        (program.admin, authority.to_owned()),
        (program.admin, format!("{}", program.admin)),
    ] {
        let mut caller = Caller::at(listener, LOCALHOST);
        let head = format!("CONNECT {target} HTTP/1.1\r\nhost: {listener}\r\n\r\n");
        caller.write(head.as_bytes()).unwrap();
        if let Ok(Some(refused)) = caller.read() {
            assert!((400..500).contains(&refused.status()), "{target}: {refused:?}");
        }
    }
    assert_eq!(upstream.count(), 0, "{:?}", upstream.seen());
}

/// Point 9: a reflecting provider returns the key in headers and errors, plain and compressed.
#[test]
fn configured_key_is_not_reflected() {
    let upstream = Upstream::start(|request| {
        let wanted = request.start.split("status=").nth(1).unwrap_or_default();
        let status = wanted.split([' ', '&']).next().unwrap_or_default().parse().unwrap_or(200);
        let key = received_key(request).trim_start_matches("Bearer ").to_owned();
        let text = reflection(request);
        let mut answer = UpstreamResponse::json(status, &text)
            .header("x-echo", &format!("Bearer {key}"))
            .header("set-cookie", &format!("session={key}; Path=/"))
            .header("location", &format!("https://login.test/?key={key}"))
            .header("www-authenticate", &format!("Bearer realm=\"{key}\""))
            .header("x-request-id", &key)
            .header(&format!("x-{key}"), "1");
        if request.start.contains("gzip") {
            answer = answer.header("content-encoding", "gzip");
            answer.body = gzip(&text);
        }
        answer
    });
    let program = start(&own_keys(&upstream, "max_retries = 0"));
    for (name, path) in DIALECTS {
        for status in [200, 302, 400, 401, 404, 429, 500, 503] {
            for coding in ["plain", "gzip"] {
                if coding == "gzip" && status < 400 {
                    continue;
                }
                let call = program.post(&format!("{path}?{coding}&status={status}"), &[], CHAT);
                let listed = format!("/{name}/v1/models?{coding}&status={status}");
                let listed = program.request("GET", &listed, &[], b"");
                for response in [call, listed] {
                    assert_eq!(response.status(), status, "{name} {coding}: {response:?}");
                    assert!(!shows(&response, KEY), "{name} {coding}: {response:?}");
                    assert_ne!(response.header("content-encoding"), Some("gzip"), "{response:?}");
                    assert!(
                        response.text().contains("host: "),
                        "other text is unchanged: {response:?}"
                    );
                }
            }
        }
    }
    assert!(upstream.seen().iter().all(|request| received_key(request).contains(KEY)));
    let ended = program.serving.stop("TERM");
    assert!(!ended.stderr.contains(KEY), "{ended:?}");
}

/// Point 9: a fallback gets its own key, which its response must not contain.
#[test]
fn fallback_key_is_not_reflected() {
    let failing = Upstream::start(|_| UpstreamResponse::json(503, "{}"));
    let reflecting = Upstream::start(|request| {
        let mut answer = small_response().header("x-echo", received_key(request));
        answer.body = reflection(request).into_bytes();
        answer
    });
    let config = format!(
        "[providers.openai]\nbase_url = \"{}\"\nmax_retries = 0\nfallback = [\"other\"]\n\
         api_key_env = \"OPERATOR_KEY\"\n\
         [providers.other]\nbase_url = \"{}\"\ndialect = \"openai\"\napi_key_env = \"OTHER_KEY\"\n",
        failing.url, reflecting.url
    );
    let program = start(&config);
    let response = program.post("/openai/v1/chat/completions", &[], CHAT);
    assert_eq!(response.header("x-tidegate-provider"), Some("other"), "{response:?}");
    assert!(received_key(&reflecting.seen()[0]).contains(OTHER_KEY));
    assert!(!shows(&response, OTHER_KEY) && !shows(&response, KEY), "{response:?}");
}

/// Point 10: a provider's response to one caller is not sent to another.
#[test]
fn quota_error_of_one_caller_is_not_shown_to_another() {
    const PRIVATE: [&str; 4] = ["org-victim", "victim-cookie", "req-victim", "victim@example.test"];
    let bodies = [
        r#"{"error":{"message":"org-victim victim@example.test has no quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        r#"{"type":"error","error":{"type":"billing_error","message":"org-victim victim@example.test has no quota"}}"#,
        r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"org-victim victim@example.test","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel"}]}]}}"#,
    ];
    let upstream = Upstream::start(move |request| {
        let dialect = DIALECTS.iter().position(|(_, path)| {
            request.start.contains(path.rsplit('/').next().unwrap_or_default())
        });
        let status = if dialect == Some(1) { 402 } else { 429 };
        UpstreamResponse::json(status, bodies[dialect.unwrap_or_default()])
            .header("set-cookie", "session=victim-cookie")
            .header("openai-organization", "org-victim")
            .header("x-request-id", "req-victim")
    });
    let shared = own_keys(&upstream, "max_retries = 0");
    let brought = shared.replace("api_key_env = \"OPERATOR_KEY\"\n", "");
    let keys = [("authorization", "Bearer sk-shared"), ("x-api-key", "sk-shared")];
    for (config, headers) in [(shared, &keys[..0]), (brought, &keys[..])] {
        let program = start(&config);
        for (name, path) in DIALECTS {
            let before = upstream.count();
            let first = program.post(path, headers, CHAT);
            assert!(
                first.text().contains("org-victim"),
                "the first caller sees its own error: {first:?}"
            );
            let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
            let mut other = Caller::at(program.http, from);
            let headers = [headers, &[("content-type", "application/json")]].concat();
            let second = other.request("POST", path, &headers, CHAT);
            assert_eq!(upstream.count(), before + 1, "{name}: the second was not sent");
            assert_eq!(first.status(), second.status(), "{name}: {second:?}");
            for word in PRIVATE {
                assert!(!shows(&second, word), "{name}: {second:?}");
            }
            let named = match name {
                "openai" => "\"code\":\"insufficient_quota\"",
                "anthropic" => "\"type\":\"billing_error\"",
                _ => "\"status\":\"RESOURCE_EXHAUSTED\"",
            };
            assert!(second.text().contains(named), "{name}: {second:?}");
            assert_eq!(second.header("x-should-retry"), Some("false"), "{name}: {second:?}");
        }
    }
}

/// Point 11: no caller requested another protocol.
#[test]
fn protocol_switch_of_a_provider_is_a_bad_gateway() {
    let upstream = Upstream::start(|_| {
        let answer = UpstreamResponse::json(101, "");
        answer.header("connection", "upgrade").header("upgrade", "websocket")
    });
    let program = start(&own_keys(&upstream, "max_retries = 0"));
    for (name, path) in DIALECTS {
        let call = program.post(path, &[], CHAT);
        let listed = program.request("GET", &format!("/{name}/v1/models"), &[], b"");
        for response in [call, listed] {
            assert_eq!(response.status(), 502, "{name}: {response:?}");
            assert!(response.text().contains("\"error\""), "{name}: {response:?}");
            assert_eq!(response.header("upgrade"), None, "{name}: {response:?}");
        }
    }
}

/// Point 11: with this status clients fall back to HTTP immediately; with others they keep
/// retrying.
#[test]
fn websocket_upgrade_gets_426() {
    let upstream = Upstream::start(|_| small_response());
    let program = start(&own_keys(&upstream, ""));
    let headers = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for name in ["openai", "anthropic", "gemini"] {
        let path = format!("/{name}/v1/responses");
        let refused = program.request("GET", &path, &headers, b"");
        assert_eq!(refused.status(), 426, "{refused:?}");
        assert_eq!(refused.header("upgrade"), Some("HTTP/1.1"), "{refused:?}");
        assert!(refused.text().contains("use HTTP"), "{refused:?}");
    }
    assert_eq!(upstream.count(), 0);
    // The same connection can still be used for HTTP.
    let mut caller = Caller::at(program.http, LOCALHOST);
    assert_eq!(caller.request("GET", "/openai/v1/responses", &headers, b"").status(), 426);
    let json = [("content-type", "application/json")];
    assert_eq!(caller.request("POST", DIALECTS[0].1, &json, CHAT).status(), 200);
}

/// Point 12: without a token, the author of an action is the address of the peer.
#[test]
fn every_operator_action_is_audited_with_its_author() {
    let program = Program::start("[limits.api]\nrate = \"10/s\"\ncapacity = 10\n");
    let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
    let json = [("content-type", "application/json")];
    let of_key = |rest: &str| format!(r#"{{"key":"mallory","limit":"api"{rest}}}"#);
    let send = |listener, method: &str, path: &str, body: &str| {
        let mut caller = Caller::at(listener, from);
        let response = caller.request(method, path, &json, body.as_bytes());
        (response.status(), response)
    };
    let ok = |answer: (u16, Message)| assert_eq!(answer.0, 200, "{:?}", answer.1);
    let keyed = [("hold", r#","for_ms":1000"#), ("settle", r#","delta":-3"#), ("reset", "")];
    for (verb, rest) in keyed {
        ok(send(program.http, "POST", &format!("/v1/{verb}"), &of_key(rest)));
    }
    let operations = r#"{"operations":[{"op":"reset","key":"mallory","limit":"api"}]}"#;
    ok(send(program.http, "POST", "/v1/batch", operations));
    ok(send(program.http, "PUT", "/v1/pending", r#"{"value":7,"ttl_ms":1000}"#));
    let change = r#"{"limits":{"api":{"capacity":20}}}"#;
    ok(send(program.admin, "PATCH", "/admin/config", change));
    let refused = send(program.admin, "PATCH", "/admin/config", &change.replace("20", "0"));
    assert_eq!(refused.0, 422, "{:?}", refused.1);
    // Takes are not audited; there would be too many.
    ok(send(program.http, "POST", "/v1/take", &of_key("")));
    let ended = program.serving.stop("TERM");
    let count = |door: &str, event: &str| {
        let author = format!("door=\"{door}\" who=\"127.0.0.3\"");
        let lines = ended.stderr.lines().filter(|line| line.contains("tidegate::audit"));
        lines.filter(|line| line.contains(event) && line.contains(&author)).count()
    };
    for (door, event, expected) in [
        ("http", "key held", 1),
        ("http", "key corrected", 1),
        ("http", "key reset", 2),
        ("http", "pending requests set", 1),
        ("admin", "setting changed", 1),
        ("admin", "change refused", 1),
    ] {
        assert_eq!(count(door, event), expected, "{door}: {event}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("mallory"), "{}", ended.stderr);
    assert!(ended.stderr.contains("key_hash=\"c0a49776\""), "{}", ended.stderr);
}
