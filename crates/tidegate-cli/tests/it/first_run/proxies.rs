//! Calls through proxies that are set by environment variables.

use tidegate_testkit::launch::{ForwardProxy, ProxyRequest, TlsFront};

use super::{address, chat, provider, serve_text};
use crate::program::{Serving, end};

/// `me:secret`.
const AUTHORIZATION: &str = "Basic bWU6c2VjcmV0";

/// A provider on a host that only the proxy can resolve.
const NOWHERE: &str = "[providers.openai]\nbase_url = \"http://provider.test\"\n";

/// Setting: proxy.http
#[test]
fn plain_http_calls_use_the_proxy_with_absolute_urls() {
    let server = provider("m");
    let proxy = ForwardProxy::start(address(&server), Some(AUTHORIZATION));
    let url = format!("http://me:secret@{}", proxy.address());
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "TIDEGATE_PROXY_HTTP"] {
        let here = tempfile::tempdir().unwrap();
        let mut command = serve_text(here.path(), NOWHERE);
        let serving = Serving::start(command.env(variable, &url).env("TIDEGATE_LOG", "trace"));
        let answer = chat(&serving, "openai", "m");
        assert_eq!((answer.status, &answer.body["model"]), (200, &"m".into()), "{answer:?}");
        let expected = ProxyRequest {
            line: "POST http://provider.test/v1/chat/completions HTTP/1.1".to_owned(),
            authorization: Some(AUTHORIZATION.to_owned()),
        };
        assert_eq!(proxy.requests().last(), Some(&expected), "{variable}");
        let (value, source) = serving.setting("proxy.http");
        let shown = format!("http://{}", proxy.address());
        assert_eq!((value, source.as_str()), (shown.into(), "environment"));
        let told = serving.stop("TERM").stderr;
        assert!(!told.contains("secret") && !told.contains("bWU6c2VjcmV0"), "{told}");
    }
}

/// Setting: proxy.https
#[test]
fn https_calls_use_a_connect_tunnel_with_credentials() {
    let server = provider("m");
    let front = TlsFront::start(address(&server));
    let proxy = ForwardProxy::start(front.address(), Some(AUTHORIZATION));
    let port = front.address().port();
    let text = format!(
        "[providers.openai]\nbase_url = \"https://localhost:{port}\"\nca_file = \"{}\"\n",
        front.ca().display()
    );
    let here = tempfile::tempdir().unwrap();
    let mut command = serve_text(here.path(), &text);
    let url = format!("http://me:secret@{}", proxy.address());
    let serving = Serving::start(command.env("HTTPS_PROXY", &url).env("HTTP_PROXY", "http://x:1"));
    let answer = chat(&serving, "openai", "m");
    assert_eq!(answer.status, 200, "{answer:?}");
    let expected = ProxyRequest {
        line: format!("CONNECT localhost:{port} HTTP/1.1"),
        authorization: Some(AUTHORIZATION.to_owned()),
    };
    assert_eq!(proxy.requests(), [expected]);
}

/// Setting: proxy.no_proxy
#[test]
fn hosts_in_no_proxy_bypass_the_proxy() {
    let server = provider("m");
    let proxy = ForwardProxy::start(address(&server), None);
    let url = format!("http://{}", proxy.address());
    let text = format!("[providers.openai]\nbase_url = \"{}\"\n", server.url);
    for (hosts, is_proxied) in [
        ("", true),
        ("example.org", true),
        ("127.0.0.1:1", true),
        ("localhost, 127.0.0.1", false),
        ("127.0.0.0/8", false),
        ("*", false),
    ] {
        let here = tempfile::tempdir().unwrap();
        let mut command = serve_text(here.path(), &text);
        let serving = Serving::start(command.env("HTTP_PROXY", &url).env("NO_PROXY", hosts));
        let before = proxy.requests().len();
        assert_eq!(chat(&serving, "openai", "m").status, 200, "{hosts}");
        assert_eq!(proxy.requests().len() > before, is_proxied, "{hosts}");
    }
}

#[test]
fn invalid_proxy_is_rejected_without_showing_its_password() {
    for (variable, value, told) in [
        ("HTTPS_PROXY", "socks5://me:secret@h:1", "SOCKS is not supported"),
        ("HTTPS_PROXY", "http://me:secret@h:port", "must be the address of an HTTP proxy"),
        ("NO_PROXY", "10.0.0.0/99", "must be hosts, domains such as .internal"),
    ] {
        let here = tempfile::tempdir().unwrap();
        let ended = end(serve_text(here.path(), "").env(variable, value));
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.starts_with(&format!("{variable}: proxy.")), "{ended:?}");
        assert!(ended.stderr.contains(told) && !ended.stderr.contains("secret"), "{ended:?}");
    }
    let here = tempfile::tempdir().unwrap();
    let mut command = serve_text(here.path(), "");
    command.env("ALL_PROXY", "socks5://h:1").env("HTTPS_PROXY", "http://h:1");
    let serving = Serving::start(command.env("TIDEGATE_PROXY_HTTP", "none"));
    assert_eq!(serving.setting("proxy.http").0, "none", "an unused variable is not validated");
}

#[test]
fn unreachable_proxy_is_named_in_the_error() {
    let here = tempfile::tempdir().unwrap();
    let text = format!("{NOWHERE}max_retries = 0\n");
    let mut command = serve_text(here.path(), &text);
    let serving = Serving::start(command.env("HTTP_PROXY", "http://me:secret@127.0.0.1:1"));
    let answer = chat(&serving, "openai", "m");
    assert_eq!(answer.status, 502, "{answer:?}");
    let message = answer.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("proxy 127.0.0.1:1 cannot be reached"), "{message}");
    assert!(!message.contains("secret"), "{message}");
}
