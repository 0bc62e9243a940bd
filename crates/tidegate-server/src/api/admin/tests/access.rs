//! Access control.

use super::*;

const CHANGE: &str = r#"{"limits":{"client":{"capacity":7}}}"#;
const PATHS: [&str; 3] = ["/admin/config", "/admin/history", "/metrics"];

#[test]
fn without_tokens_pages_of_others_are_kept_out_all_the_same() {
    let gate = Gate::open();
    for path in PATHS.into_iter().chain(["/config"]) {
        assert_eq!(gate.get(path).status, 200, "{path}");
        let evil = [("host", "evil.example")];
        gate.ask("GET", path, &evil, "").refused(421, "foreign-host");
        let page = [("origin", "https://evil.example")];
        gate.ask("GET", path, &page, "").refused(403, "foreign-origin");
    }
    gate.patch(&[("origin", "https://evil.example")], "{}").refused(403, "foreign-origin");
    assert_eq!(gate.revision(), 1);
}

#[test]
fn with_tokens_nobody_looks_without_one() {
    let (gate, reader, _) = Gate::guarded();
    let (token, guess) = (bearer(&reader), "Bearer tidegate_guess".to_owned());
    for path in PATHS.into_iter().chain(["/admin/events", "/nothing"]) {
        let reply = gate.get(path);
        reply.refused(401, "unauthorized");
        assert_eq!(reply.header("www-authenticate"), "Bearer realm=\"tidegate\"");
        let reply = gate.ask("GET", path, &[("authorization", &guess)], "");
        reply.refused(401, "unauthorized");
        assert!(reply.header("www-authenticate").contains("invalid_token"));
    }
    for path in PATHS {
        assert_eq!(gate.ask("GET", path, &[("authorization", &token)], "").status, 200, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(gate.get(path).status, 200);
        assert_eq!(gate.ask("GET", path, &[("host", "10.0.0.7:6070")], "").status, 200);
    }
}

#[test]
fn only_a_token_that_may_write_changes_anything_and_it_is_remembered_who_did() {
    let (gate, reader, writer) = Gate::guarded();
    gate.patch(&[], CHANGE).refused(401, "unauthorized");
    let reply = gate.patch(&[("authorization", &bearer(&reader))], CHANGE);
    reply.refused(403, "forbidden");
    assert!(reply.header("www-authenticate").contains("insufficient_scope"));
    assert_eq!(gate.revision(), 1);
    let reply = gate.patch(&[("authorization", &bearer(&writer))], CHANGE);
    assert_eq!(reply.status, 200, "{reply:?}");
    let history = gate.ask("GET", "/admin/history", &[("authorization", &bearer(&writer))], "");
    let who = history.json()["changes"][0]["who"].as_str().unwrap().to_owned();
    assert_eq!(who.len(), 8);
    assert!(writer.digest.to_string().starts_with(&format!("sha256:{who}")));
}

/// A scraper uses the machine's name, which need not be configured if it has a token.
#[test]
fn whoever_brings_a_token_may_name_any_host() {
    let (gate, reader, _) = Gate::guarded();
    let evil = ("host", "scraped.example:6070");
    gate.ask("GET", "/metrics", &[evil], "").refused(421, "foreign-host");
    let fields = [evil, ("authorization", &bearer(&reader))];
    assert_eq!(gate.ask("GET", "/metrics", &fields, "").status, 200);
}

#[test]
fn a_token_that_is_withdrawn_opens_nothing_from_then_on() {
    let (gate, reader, _) = Gate::guarded();
    let field = bearer(&reader);
    assert_eq!(gate.ask("GET", "/admin/config", &[("authorization", &field)], "").status, 200);
    gate.tokens.replace([(mint().unwrap().digest, Role::Read)]);
    gate.ask("GET", "/admin/config", &[("authorization", &field)], "").refused(401, "unauthorized");
}

/// R368: callers may know the limits that apply to them; nothing in the summary is secret.
#[test]
fn the_summary_needs_no_token_and_tells_no_secrets() {
    let (gate, reader, _) = Gate::guarded();
    let guess = ("authorization", "Bearer tidegate_guess");
    for fields in [&[][..], &[guess], &[("authorization", &bearer(&reader))]] {
        let reply = gate.ask("GET", "/config", fields, "");
        assert_eq!(reply.status, 200, "{reply:?}");
        for secret in ["://", "sha256", "127.0.0.1", "state"] {
            assert!(!reply.body.contains(secret), "{}", reply.body);
        }
    }
    gate.ask("GET", "/config", &[("host", "evil.example")], "").refused(421, "foreign-host");
    let page = [("origin", "https://evil.example")];
    gate.ask("GET", "/config", &page, "").refused(403, "foreign-origin");
}
