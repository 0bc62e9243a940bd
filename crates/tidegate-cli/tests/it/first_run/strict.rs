//! `tidegate check --strict`: whether providers are reachable.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use tidegate_testkit::launch::{ForwardProxy, TlsFront};

use super::{address, provider};
use crate::program::{Ended, end, tidegate};

fn check(folder: &Path, text: &str, environment: &[(&str, &str)]) -> Ended {
    fs::write(folder.join("t.toml"), text).unwrap();
    let mut command = tidegate(folder, &["check", "--strict", "t.toml"]);
    end(command.envs(environment.iter().copied()))
}

#[test]
fn each_provider_is_tried_and_an_unreachable_one_fails_the_check() {
    let here = tempfile::tempdir().unwrap();
    let live = provider("m");
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = |second: &str| {
        format!("[providers.openai]\nbase_url = \"{}\"\n[providers.ollama]\n{second}\n", live.url)
    };
    let one = text(&format!("base_url = \"{}/v1\"", live.url));
    let ended = check(here.path(), &one, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ok\n"), "{ended:?}");
    let lines: Vec<_> = ended.stderr.lines().collect();
    assert_eq!(lines[0], "trying to reach ollama, openai", "the others are not configured");
    assert!(lines.contains(&format!("openai: reached {}", live.url).as_str()), "{ended:?}");
    let two = text(&format!("base_url = \"http://{dead}\"\nconnect_timeout = \"2s\""));
    let ended = check(here.path(), &two, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    let line = format!("ollama: cannot reach http://{dead}: connection refused by {dead}\n");
    assert!(ended.stderr.contains(&line), "{ended:?}");
    assert!(ended.stderr.contains(&format!("openai: reached {}\n", live.url)), "{ended:?}");
    assert!(ended.stderr.ends_with("1 of 2 providers cannot be reached\n"), "{ended:?}");
    assert_eq!(live.simulator.ledger().seen(), 0, "only a connection is made");
}

#[test]
fn unknown_host_and_silent_server_are_reported() {
    let here = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let text = format!(
        "[providers.a]\nbase_url = \"https://nope.invalid\"\n\
         [providers.b]\nbase_url = \"https://{at}\"\nconnect_timeout = \"300ms\"\n"
    );
    let ended = check(here.path(), &text, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for told in [
        "a: cannot reach https://nope.invalid: host name \"nope.invalid\" cannot be resolved",
        &format!("b: cannot reach https://{at}: no connection within 300ms"),
        "2 of 2 providers cannot be reached",
    ] {
        assert!(ended.stderr.contains(told), "{told}: {ended:?}");
    }
}

#[test]
fn ca_files_and_proxies_are_used() {
    let here = tempfile::tempdir().unwrap();
    let server = provider("m");
    let front = TlsFront::start(address(&server));
    let url = format!("https://localhost:{}", front.address().port());
    let with_roots = format!("ca_file = \"{}\"\n", front.ca().display());
    let text = |more: &str| format!("[providers.openai]\nbase_url = \"{url}\"\n{more}");
    let ended = check(here.path(), &text(""), &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("openai: cannot reach https://localhost"), "{ended:?}");
    let ended = check(here.path(), &text(&with_roots), &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let proxy = ForwardProxy::start(front.address(), Some("Basic bWU6c2VjcmV0"));
    let at = proxy.address();
    let with = format!("http://me:secret@{at}");
    let ended = check(here.path(), &text(&with_roots), &[("HTTPS_PROXY", &with)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains(&format!("{url} through proxy {at}\n")), "{ended:?}");
    assert!(proxy.requests()[0].line.starts_with("CONNECT localhost:"), "{:?}", proxy.requests());
    let ended = check(here.path(), &text(&with_roots), &[("HTTPS_PROXY", &format!("http://{at}"))]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("status 407, proxy authentication required"), "{ended:?}");
    let plain = "[providers.openai]\nbase_url = \"http://provider.test\"\n";
    let dead = ForwardProxy::start("127.0.0.1:1".parse().unwrap(), None);
    let ended = check(here.path(), plain, &[("HTTP_PROXY", &format!("http://{}", dead.address()))]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("returned status 502"), "{ended:?}");
}

#[test]
fn without_configured_providers_nothing_is_tried() {
    let here = tempfile::tempdir().unwrap();
    let ended = check(here.path(), "", &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ok\n"), "{ended:?}");
    assert_eq!(ended.stderr, "no provider is configured; nothing to connect to\n");
}
