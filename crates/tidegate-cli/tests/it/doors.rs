//! Access control of the admin API.

use serde_json::json;

use crate::program::{Ended, Serving, end, run, serve};

/// Creates a token and returns it with its hash.
fn key() -> (String, String) {
    let here = tempfile::tempdir().unwrap();
    let Ended { code, stdout, stderr } = run(here.path(), &["key"]);
    assert_eq!(code, Some(0));
    let lines: Vec<_> = stdout.lines().map(ToOwned::to_owned).collect();
    let [token, hash] = <[String; 2]>::try_from(lines).unwrap();
    assert!(hash.starts_with("sha256:") && !stderr.contains(&token), "{stderr}");
    (token, hash)
}

/// Setting: admin.read_tokens, admin.write_tokens
#[test]
fn tokens_grant_read_or_write_access() {
    let here = tempfile::tempdir().unwrap();
    let ((writer, may_write), (reader, may_read)) = (key(), key());
    assert_ne!(writer, reader);
    let text =
        format!("[admin]\nwrite_tokens = [\"{may_write}\"]\nread_tokens = [\"{may_read}\"]\n");
    std::fs::write(here.path().join("tidegate.toml"), text).unwrap();
    let mut serving = Serving::start(serve(here.path(), &[]).env("TIDEGATE_LOG", "debug"));
    let change = json!({"limits": {"client": {"capacity": 5}}});
    assert_eq!((serving.ask("/metrics").0, serving.patch(&change).0), (401, 401));
    serving.token = Some(reader.clone());
    assert_eq!((serving.ask("/metrics").0, serving.patch(&change).0), (200, 403));
    serving.token = Some(writer.clone());
    assert_eq!((serving.ask("/metrics").0, serving.patch(&change).0), (200, 200));
    let (_, shown) = serving.ask("/admin/config");
    let ended = serving.stop("TERM");
    let who = &may_write["sha256:".len()..][..8];
    assert!(ended.stderr.contains(&format!("door=\"admin\" who=\"{who}\"")), "{ended:?}");
    for secret in [&writer, &reader, &may_write, &may_read] {
        assert!(!ended.stderr.contains(secret) && !shown.contains(secret));
    }
}

/// Setting: listen.admin, listen.grpc, admin.allow_unauthenticated
#[test]
fn listening_beyond_loopback_requires_tokens_or_an_override() {
    let here = tempfile::tempdir().unwrap();
    for door in ["--admin", "--grpc"] {
        let ended = end(&mut serve(here.path(), &[door, "0.0.0.0:0"]));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
        for hint in ["tidegate key", "write_tokens", "127.0.0.1:0", "allow_unauthenticated"] {
            assert!(ended.stderr.contains(hint), "{hint} in {ended:?}");
        }
    }
    let (token, hash) = key();
    let mut command = serve(here.path(), &["--admin", "0.0.0.0:0"]);
    let mut serving = Serving::start(command.env("TIDEGATE_ADMIN_WRITE_TOKENS", &hash));
    serving.admin = serving.admin.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(serving.ask("/admin/config").0, 401);
    serving.token = Some(token);
    assert_eq!(serving.ask("/admin/config").0, 200);
    let open = ["--admin", "0.0.0.0:0", "--allow-unauthenticated"];
    let mut serving = Serving::start(&mut serve(here.path(), &open));
    serving.admin = serving.admin.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(serving.ask("/admin/config").0, 200);
}
