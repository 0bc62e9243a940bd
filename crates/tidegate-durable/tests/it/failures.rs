//! Errors: bad settings, a wrong secret, a Worker that is away, slow or answers nonsense.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate::guard::GuardedStore;
use tidegate::{Engine, FailureRule, Policy};
use tidegate_core::{Store, StoreError};
use tidegate_durable::{DurableBuildError, DurableStore};
use tidegate_testkit::launch::Workerd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::fixture::{SECRET, limit, store, take};

#[test]
fn invalid_settings_are_refused() {
    let build = |shards| DurableStore::builder("durable+http://127.0.0.1:1").shards(shards).build();
    for shards in [0, 65_537, u64::MAX] {
        assert!(
            matches!(build(shards), Err(DurableBuildError::Shards(n)) if n == shards),
            "{shards}"
        );
    }
    build(1).unwrap();
    let empty = DurableStore::builder("durable+http://h").secret("").build();
    assert!(matches!(empty, Err(DurableBuildError::Secret)));
    let builder = DurableStore::builder("durable+http://h").secret("hunter2");
    assert!(!format!("{builder:?}").contains("hunter2"));
    let built = builder.build().unwrap();
    assert!(!format!("{built:?}").contains("hunter2"));
}

#[tokio::test]
async fn wrong_secret_is_named_as_the_cause() {
    let workerd = Workerd::builder().secret(SECRET).start();
    let address = format!("durable+http://{}", workerd.address());
    for builder in
        [DurableStore::builder(&address).secret("wrong"), DurableStore::builder(&address)]
    {
        let store = builder.build().unwrap();
        for error in [take(&store, &limit("a"), "k", 1).await.map(drop), store.probe().await] {
            let error = error.unwrap_err();
            assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
            assert!(error.to_string().contains("refused the secret"), "{error}");
        }
    }
    let right = store(&workerd, 128);
    right.probe().await.unwrap();
    assert!(take(&right, &limit("a"), "k", 1).await.unwrap().is_allowed());
}

/// With another number of shards, a key would have a bucket in two objects.
#[tokio::test]
async fn other_number_of_shards_than_the_worker_has_is_refused() {
    let workerd = Workerd::builder().secret(SECRET).binding("TIDEGATE_SHARDS", "64").start();
    let wrong = store(&workerd, 128);
    let a = limit("a");
    let several = ["one", "two"].map(|key| take(&wrong, &a, key, 1));
    let results = futures_util::future::join_all(several).await;
    for result in results.into_iter().map(|taken| taken.map(drop)).chain([wrong.probe().await]) {
        let error = result.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        let text = "this Worker has 64 shards, but the request assumes 128";
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(take(&store(&workerd, 64), &a, "one", 1).await.unwrap().is_allowed());
}

/// A server that returns one response to every request, and counts its connections.
async fn answering(response: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("durable+http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let accepted = connections.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut buffer = [0; 65_536];
                while socket.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    if response.is_empty() || socket.write_all(response.as_bytes()).await.is_err() {
                        return std::future::pending().await;
                    }
                }
            });
        }
    });
    (address, connections)
}

#[tokio::test]
async fn other_statuses_and_malformed_bodies_are_errors_and_connections_are_reused() {
    for (response, expected) in [
        ("HTTP/1.1 500 X\r\ncontent-length: 4\r\n\r\noops", "status 500: oops"),
        ("HTTP/1.1 404 X\r\ncontent-length: 9\r\n\r\nNot found", "status 404: Not found"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\noops", "invalid JSON"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "no format number"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 36\r\n\r\n{\"format\":2,\"now_ns\":1,\"replies\":[]}",
            "has format 2, but this version reads format 1",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 36\r\n\r\n{\"format\":1,\"now_ns\":1,\"replies\":[]}",
            "another number of replies",
        ),
    ] {
        let (address, connections) = answering(response).await;
        let store = DurableStore::builder(&address).secret("s").build().unwrap();
        for _ in 0..3 {
            let error = take(&store, &limit("a"), "k", 1).await.unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert_eq!(connections.load(Ordering::SeqCst), 1, "{expected}");
    }
}

#[tokio::test]
async fn silent_worker_times_out_and_absent_one_is_named() {
    let (address, _) = answering("").await;
    let store = DurableStore::builder(&address).timeout(Duration::from_millis(50)).build().unwrap();
    let error = take(&store, &limit("a"), "k", 1).await.unwrap_err();
    assert!(matches!(error, StoreError::TimedOut), "{error}");
    let store = DurableStore::builder("durable+http://127.0.0.1:1").build().unwrap();
    let error = take(&store, &limit("a"), "k", 1).await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1") && error.contains("check the address"), "{error}");
}

#[tokio::test]
async fn failure_rule_decides_while_the_worker_is_away() {
    for (rule, allowed) in [(FailureRule::Open, true), (FailureRule::Closed, false)] {
        let store = DurableStore::builder("durable+http://127.0.0.1:1").build().unwrap();
        let guarded = GuardedStore::builder(Arc::new(store)).default_rule(rule).build().unwrap();
        let engine = Engine::on(guarded);
        let policy = Policy::per_second(1).capacity(10).build().unwrap();
        let limiter = engine.limiter("client", policy).unwrap();
        let decision = limiter.take("k").await.unwrap();
        assert_eq!((decision.is_allowed(), decision.degraded()), (allowed, Some(rule)));
    }
}
