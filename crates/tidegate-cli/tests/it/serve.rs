//! `serve`: output, responses and shutdown.

use std::ffi::OsStr;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;

use crate::program::{Serving, end, serve, serve_with_files};

#[test]
fn server_starts_serves_and_stops_on_a_signal() {
    let here = tempfile::tempdir().unwrap();
    for signal in ["TERM", "INT"] {
        let serving = Serving::start(&mut serve(here.path(), &[]));
        assert!(serving.url.starts_with("http://127.0.0.1:"), "{}", serving.url);
        assert!(!serving.url.ends_with(":0"));
        let (status, body) = serving.post("/v1/take", r#"{"key":"alice","limit":"client"}"#);
        assert_eq!(
            (status, body.as_str()),
            (200, r#"{"allowed":true,"remaining":99,"reset_after_ms":20}"#)
        );
        let (status, _) =
            serving.post("/v1/take", r#"{"key":"alice","limit":"organization","cost":1001}"#);
        assert_eq!(status, 429);
        let url = serving.url.clone();
        let ended = serving.stop(signal);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
        assert!(ended.stderr.contains("the in-process store has room for "), "{ended:?}");
        assert!(ended.stderr.contains(" keys in 64MiB\n"));
        let curl = format!(
            "try: curl -i -H 'content-type: application/json' -d \
             '{{\"key\":\"alice\",\"limit\":\"client\"}}' {url}/v1/take\n"
        );
        assert!(ended.stderr.contains(&curl), "{ended:?}");
    }
}

#[test]
fn flags_override_environment_override_file() {
    let here = tempfile::tempdir().unwrap();
    let text = "[listen]\nhttp = \"nowhere\"\n";
    fs::write(here.path().join("tidegate.toml"), text).unwrap();
    let ended = end(&mut serve(here.path(), &[]));
    assert_eq!(ended.code, Some(2), "a flag does not hide an error in the file: {ended:?}");
    let text = "[listen]\nhttp = \"192.0.2.1:1\"\n[store]\nmax_memory = \"8MiB\"\n\
                [limits.api]\ncapacity = 7\nrate = \"1/s\"\n";
    fs::write(here.path().join("tidegate.toml"), text).unwrap();
    let mut command = serve(here.path(), &[]);
    command.env("TIDEGATE_LISTEN_HTTP", "192.0.2.1:2").env("TIDEGATE_STORE_MAX_MEMORY", "4MiB");
    let serving = Serving::start(&mut command);
    let (status, body) = serving.post("/v1/peek", r#"{"key":"alice","limit":"api","cost":0}"#);
    assert_eq!((status, body.contains(r#""remaining":7"#)), (200, true), "{body}");
    let ended = serving.stop("TERM");
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains(" keys in 4MiB\n"), "{ended:?}");
    assert!(ended.stderr.contains("{\"key\":\"alice\",\"limit\":\"api\"}"));
}

/// Setting: listen.http
#[test]
fn address_in_use_is_reported() {
    let here = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = end(&mut serve(here.path(), &["--http", &address]));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    let expected = format!("http listener: cannot bind {address}: ");
    assert!(ended.stderr.contains(&expected), "{ended:?}");
    assert!(ended.stderr.contains("another program uses this address"));
}

/// Setting: listen.resp
#[test]
fn unused_keys_are_accepted_with_a_warning() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("tidegate.toml"), "[modules.rate_limit]\nenabled = true\n").unwrap();
    let serving = Serving::start(&mut serve(here.path(), &["--resp", "127.0.0.1:0"]));
    let ended = serving.stop("TERM");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
    for line in [
        "--resp: listen.resp is accepted but not used by this version: there is no RESP listener\n",
        "tidegate.toml:2:11: modules.rate_limit.enabled is used by the library only: ",
    ] {
        assert!(ended.stderr.contains(line), "{ended:?}");
    }
    assert!(!here.path().join("state").exists(), "nothing is written before the first change");
}

#[test]
fn log_follows_its_filter_and_never_contains_a_key() {
    let here = tempfile::tempdir().unwrap();
    let mut command = serve(here.path(), &[]);
    let serving = Serving::start(command.env("TIDEGATE_LOG", "trace"));
    let secret = "alice@example.org";
    for body in [
        format!(r#"{{"key":"{secret}","limit":"client"}}"#),
        format!(r#"{{"key":"{secret}","limit":"client","cost":-1}}"#),
        format!(r#"{{"key":"{secret}","limit":"client","cost":500}}"#),
    ] {
        serving.post("/v1/take", &body);
    }
    let ended = serving.stop("TERM");
    assert!(ended.stderr.contains("listening listener=\"http\""), "{ended:?}");
    assert!(!ended.stderr.contains(secret), "{ended:?}");
    let mut command = serve(here.path(), &[]);
    let output = command.env("TIDEGATE_LOG", "client=loud=no").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// Running out of open files stops no listener and does not fill the log.
#[test]
fn server_survives_running_out_of_open_files() {
    let here = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(&mut serve_with_files(32, here.path(), &[]));
    let address = serving.url.trim_start_matches("http://").to_owned();
    let crowd: Vec<_> = (0..40).map(|_| TcpStream::connect(&address).unwrap()).collect();
    serving.wait_for("cannot accept connections; will retry");
    drop(crowd);
    let (status, _) = serving.post("/v1/take", r#"{"key":"alice","limit":"client"}"#);
    assert_eq!(status, 200);
    let ended = serving.stop("TERM");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr.matches("cannot accept connections; will retry").count(), 1);
}

/// Regression: a size of 95 million gigabytes caused a panic.
#[test]
fn impossible_memory_size_is_a_configuration_error() {
    let here = tempfile::tempdir().unwrap();
    let mut command = serve(here.path(), &[]);
    let output = command.env("TIDEGATE_STORE_MAX_MEMORY", "99999999GiB").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    let rule = "store.max_memory = \"99999999GiB\": must be at most 1TiB";
    assert!(told.starts_with(&format!("TIDEGATE_STORE_MAX_MEMORY: {rule}")), "{told}");
}

#[test]
fn listening_beyond_loopback_hints_at_allowed_hosts() {
    let here = tempfile::tempdir().unwrap();
    let hint = "add the names and addresses that clients use to `allowed_hosts`";
    for (address, hosts, told) in [
        ("0.0.0.0:0", "", true),
        ("0.0.0.0:0", "tidegate.internal", false),
        ("127.0.0.1:0", "", false),
    ] {
        let mut command = serve(here.path(), &["--http", address]);
        let serving = Serving::start(command.env("TIDEGATE_LISTEN_ALLOWED_HOSTS", hosts));
        let ended = serving.stop("TERM");
        assert_eq!(ended.stderr.contains(hint), told, "{ended:?}");
    }
}

#[test]
fn non_utf8_setting_is_rejected() {
    let here = tempfile::tempdir().unwrap();
    let broken = OsStr::from_bytes(b"64MiB\xff");
    let mut command = serve(here.path(), &[]);
    let output = command.env("TIDEGATE_STORE_MAX_MEMORY", broken).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
