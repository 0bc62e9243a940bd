//! `serve --store redis://...`: several servers share their limits.

use tidegate_testkit::launch::{Flavor, RedisServer};

use crate::program::{Serving, serve};

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
