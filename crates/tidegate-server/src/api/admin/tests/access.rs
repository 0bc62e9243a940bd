//! Access control.

use super::*;

const CHANGE: &str = r#"{"limits":{"client":{"capacity":7}}}"#;
const PATHS: [&str; 3] = ["/admin/config", "/admin/history", "/metrics"];

#[test]
fn foreign_pages_are_refused_even_without_tokens() {
    let server = TestServer::open();
    for path in PATHS.into_iter().chain(["/config"]) {
        assert_eq!(server.get(path).status, 200, "{path}");
        let evil = [("host", "evil.example")];
        server.request("GET", path, &evil, "").assert_problem(421, "foreign-host");
        let page = [("origin", "https://evil.example")];
        server.request("GET", path, &page, "").assert_problem(403, "foreign-origin");
    }
    server.patch(&[("origin", "https://evil.example")], "{}").assert_problem(403, "foreign-origin");
    assert_eq!(server.revision(), 1);
}

#[test]
fn configured_tokens_are_required() {
    let (server, reader, _) = TestServer::with_tokens();
    let (token, guess) = (bearer(&reader), "Bearer tidegate_guess".to_owned());
    for path in PATHS.into_iter().chain(["/admin/events", "/nothing"]) {
        let response = server.get(path);
        response.assert_problem(401, "unauthorized");
        assert_eq!(response.header("www-authenticate"), "Bearer realm=\"tidegate\"");
        let response = server.request("GET", path, &[("authorization", &guess)], "");
        response.assert_problem(401, "unauthorized");
        assert!(response.header("www-authenticate").contains("invalid_token"));
    }
    for path in PATHS {
        assert_eq!(
            server.request("GET", path, &[("authorization", &token)], "").status,
            200,
            "{path}"
        );
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.get(path).status, 200);
        assert_eq!(server.request("GET", path, &[("host", "10.0.0.7:6070")], "").status, 200);
    }
}

#[test]
fn changes_need_a_write_token_and_are_recorded_with_their_author() {
    let (server, reader, writer) = TestServer::with_tokens();
    server.patch(&[], CHANGE).assert_problem(401, "unauthorized");
    let response = server.patch(&[("authorization", &bearer(&reader))], CHANGE);
    response.assert_problem(403, "forbidden");
    assert!(response.header("www-authenticate").contains("insufficient_scope"));
    assert_eq!(server.revision(), 1);
    let response = server.patch(&[("authorization", &bearer(&writer))], CHANGE);
    assert_eq!(response.status, 200, "{response:?}");
    let history =
        server.request("GET", "/admin/history", &[("authorization", &bearer(&writer))], "");
    let who = history.json()["changes"][0]["who"].as_str().unwrap().to_owned();
    assert_eq!(who.len(), 8);
    assert!(writer.digest.to_string().starts_with(&format!("sha256:{who}")));
}

/// A scraper uses the machine's name, which need not be configured if it has a token.
#[test]
fn a_valid_token_allows_any_host() {
    let (server, reader, _) = TestServer::with_tokens();
    let evil = ("host", "scraped.example:6070");
    server.request("GET", "/metrics", &[evil], "").assert_problem(421, "foreign-host");
    let fields = [evil, ("authorization", &bearer(&reader))];
    assert_eq!(server.request("GET", "/metrics", &fields, "").status, 200);
}

#[test]
fn a_revoked_token_is_refused() {
    let (server, reader, _) = TestServer::with_tokens();
    let field = bearer(&reader);
    assert_eq!(
        server.request("GET", "/admin/config", &[("authorization", &field)], "").status,
        200
    );
    server.tokens.replace([(create_token().unwrap().digest, Role::Read)]);
    server
        .request("GET", "/admin/config", &[("authorization", &field)], "")
        .assert_problem(401, "unauthorized");
}

/// R368: callers may know the limits that apply to them; nothing in the summary is secret.
#[test]
fn the_summary_needs_no_token_and_contains_no_secrets() {
    let (server, reader, _) = TestServer::with_tokens();
    let guess = ("authorization", "Bearer tidegate_guess");
    for fields in [&[][..], &[guess], &[("authorization", &bearer(&reader))]] {
        let response = server.request("GET", "/config", fields, "");
        assert_eq!(response.status, 200, "{response:?}");
        for secret in ["://", "sha256", "127.0.0.1", "state"] {
            assert!(!response.body.contains(secret), "{}", response.body);
        }
    }
    server
        .request("GET", "/config", &[("host", "evil.example")], "")
        .assert_problem(421, "foreign-host");
    let page = [("origin", "https://evil.example")];
    server.request("GET", "/config", &page, "").assert_problem(403, "foreign-origin");
}
