//! `serve --store redis://...` or `durable://...`: several servers share their limits.

use std::fs;

use tidegate_testkit::launch::{Flavor, RedisServer, Workerd};

use crate::program::{Serving, end, run, serve, tidegate};

const TAKE: &str = r#"{"key":"alice","policy":{"capacity":3,"rate":"1/day"}}"#;

/// Setting: store.url
#[test]
fn servers_on_one_redis_share_limits() {
    let here = tempfile::tempdir().unwrap();
    let server = RedisServer::builder(Flavor::Redis).password("hunter2").start();
    let args = ["--store", &server.url()];
    let one = Serving::start(&mut serve(here.path(), &args));
    let other = Serving::start(&mut serve(here.path(), &args));
    assert_eq!(
        [&one, &other, &one, &other].map(|at| at.post("/v1/take", TAKE).0),
        [200, 200, 200, 429]
    );
    for program in [one, other] {
        let ended = program.stop("TERM");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(&format!("redis://127.0.0.1:{}", server.port())),
            "{ended:?}"
        );
    }
}

/// `SSL_CERT_FILE` makes the certificate authority of the server trusted.
#[test]
fn redis_over_tls_works() {
    let here = tempfile::tempdir().unwrap();
    let server = RedisServer::builder(Flavor::Valkey).tls().start();
    let args = ["--store", &server.url()];
    let trusting = Serving::start(serve(here.path(), &args).env("SSL_CERT_FILE", server.ca_file()));
    let (status, body) = trusting.post("/v1/take", TAKE);
    assert_eq!((status, body.contains("degraded")), (200, false), "{body}");
    let careful = Serving::start(&mut serve(here.path(), &args));
    let (status, body) = careful.post("/v1/take", TAKE);
    assert_eq!((status, body.contains(r#""degraded":"local""#)), (200, true), "{body}");
    assert!(careful.stop("TERM").stderr.contains("certificate"));
}

const SECRET: &str = "hunter2hunter2";

/// Setting: store.shards
#[test]
fn servers_on_one_worker_share_limits() {
    let here = tempfile::tempdir().unwrap();
    let worker = Workerd::builder().secret(SECRET).binding("TIDEGATE_SHARDS", "16").start();
    let url = format!("durable+http://{}", worker.address());
    let start = |shards| {
        let mut command = serve(here.path(), &["--store", &url]);
        command.env("TIDEGATE_SECRET", SECRET).env("TIDEGATE_STORE_SHARDS", shards);
        Serving::start(&mut command)
    };
    let (one, other, mut wrong) = (start("16"), start("16"), start("128"));
    assert_eq!(
        [&one, &other, &one, &other].map(|at| at.post("/v1/take", TAKE).0),
        [200, 200, 200, 429]
    );
    let list = r#"{"charges":[{"limit":"client","key":"a"},{"limit":"organization","key":"b"}]}"#;
    let (status, body) = one.post("/v1/take", list);
    assert_eq!((status, body.contains("degraded")), (200, false), "{body}");
    wrong.wait_for("this Worker has 16 shards, but the request assumes 128");
    let (status, body) = wrong.post("/v1/take", TAKE);
    assert_eq!((status, body.contains(r#""degraded":"local""#)), (200, true), "{body}");
    worker.kill();
    let (status, body) = one.post("/v1/take", TAKE);
    assert_eq!((status, body.contains(r#""degraded":"local""#)), (200, true), "{body}");
    for program in [one, other, wrong] {
        let ended = program.stop("TERM");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
        assert!(!ended.stderr.contains(SECRET), "{}", ended.stderr);
        assert!(ended.stderr.contains(&url), "{ended:?}");
    }
}

#[test]
fn worker_needs_its_secret() {
    let here = tempfile::tempdir().unwrap();
    for command in [&["serve", "--store", "durable://limits.example"][..], &["check", "a.toml"]] {
        fs::write(here.path().join("a.toml"), "[store]\nurl = \"durable://limits.example\"\n")
            .unwrap();
        let ended = run(here.path(), command);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let text = "needs the secret of the Worker: set the variable TIDEGATE_SECRET";
        assert!(ended.stderr.contains(text), "{ended:?}");
    }
    let mut command = tidegate(here.path(), &["serve", "--store", "durable://:hunter2@limits"]);
    let ended = end(command.env("TIDEGATE_SECRET", SECRET));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("the secret of the Worker does not belong into the URL"));
    assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
}
