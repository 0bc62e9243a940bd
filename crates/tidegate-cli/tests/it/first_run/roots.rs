//! Root certificates per provider.

use std::fs;

use serde_json::json;
use tidegate_testkit::launch::TlsFront;

use super::{address, chat, provider, serve_text};
use crate::program::{Serving, end};

/// Setting: providers.*.ca_file
#[test]
fn ca_file_applies_only_to_its_provider() {
    let server = provider("m");
    let front = TlsFront::start(address(&server));
    let url = format!("https://localhost:{}", front.address().port());
    let text = format!(
        "[providers.trusted]\nbase_url = \"{url}\"\nca_file = \"{}\"\n\
         [providers.unknown]\nbase_url = \"{url}\"\nmax_retries = 0\n",
        front.ca().display()
    );
    let here = tempfile::tempdir().unwrap();
    let serving = Serving::start(&mut serve_text(here.path(), &text));
    // The second call must not reuse the connection of the first one.
    for (provider, status) in [("trusted", 200), ("unknown", 502), ("trusted", 200)] {
        let answer = chat(&serving, provider, "m");
        assert_eq!(answer.status, status, "{provider}: {answer:?}");
    }
}

#[test]
fn certificate_of_another_authority_is_not_trusted() {
    let server = provider("m");
    let (front, other) = (TlsFront::start(address(&server)), TlsFront::start(address(&server)));
    let text = format!(
        "[providers.openai]\nbase_url = \"https://localhost:{}\"\nca_file = \"{}\"\nmax_retries = 0\n",
        front.address().port(),
        other.ca().display()
    );
    let here = tempfile::tempdir().unwrap();
    let serving = Serving::start(&mut serve_text(here.path(), &text));
    let answer = chat(&serving, "openai", "m");
    assert_eq!(answer.status, 502, "{answer:?}");
    let message = answer.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("is not trusted"), "{message}");
}

#[test]
fn invalid_ca_file_is_rejected_at_start() {
    let here = tempfile::tempdir().unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n";
    for (name, text) in [("empty.pem", ""), ("text.pem", "no certificate"), ("broken.pem", pem)] {
        fs::write(here.path().join(name), text).unwrap();
    }
    for (name, told) in [
        ("missing.pem", "cannot be read: No such file"),
        ("empty.pem", "contains no certificate"),
        ("text.pem", "contains no certificate"),
        ("broken.pem", "contains an invalid certificate, number 1"),
        ("", "must be the path of a PEM file of root certificates"),
    ] {
        let text = format!("[providers.openai]\nca_file = \"{name}\"\n");
        let ended = end(&mut serve_text(here.path(), &text));
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let place = format!("tidegate.toml:2:11: providers.openai.ca_file = \"{name}\": {told}");
        assert!(ended.stderr.contains(&place), "{place}: {ended:?}");
    }
}

/// Changes at run time must not affect which servers receive keys.
#[test]
fn ca_file_and_proxy_cannot_be_set_at_run_time() {
    let here = tempfile::tempdir().unwrap();
    let serving = Serving::start(&mut serve_text(here.path(), ""));
    for patch in [
        json!({ "providers": { "openai": { "ca_file": "/etc/roots.pem" } } }),
        json!({ "proxy": { "https": "http://proxy.test:1" } }),
    ] {
        let (status, body) = serving.patch(&patch);
        assert_eq!(status, 422, "{patch}: {body}");
        assert!(body.contains("cannot be set in the database"), "{body}");
    }
}
