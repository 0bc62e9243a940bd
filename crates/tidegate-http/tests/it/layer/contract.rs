//! The contract of tower: the instance that was polled ready is the one that is called.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tidegate::guard::GuardedStore;
use tidegate::{Engine, MemoryStore, Policy, StoreHandle};
use tidegate_http::key;
use tidegate_http::layer::{LimitLayer, Limited};
use tower::{Layer, Service, ServiceExt};

use super::{engine, limiter};

/// A service that holds a permit from `poll_ready` until it is called, and panics if it is called
/// without one. A clone has none.
#[derive(Debug, Default)]
struct Strict {
    has_permit: bool,
    permits: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { has_permit: false, permits: self.permits.clone(), calls: self.calls.clone() }
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        if self.has_permit {
            self.permits.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if !self.has_permit {
            self.has_permit = true;
            self.permits.fetch_add(1, Ordering::SeqCst);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.has_permit, "called without being polled ready");
        self.has_permit = false;
        self.permits.fetch_sub(1, Ordering::SeqCst);
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new(Full::from("served"))))
    }
}

/// Sends two requests to one service: the first is served, the second refused. Afterwards no permit
/// of the inner service is held.
async fn serve_and_refuse(layer: LimitLayer) {
    let strict = Strict::default();
    let (permits, calls) = (strict.permits.clone(), strict.calls.clone());
    let mut service: Limited<Strict> = layer.layer(strict);
    let request = || Request::get("/").body(()).unwrap();
    let first = service.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!((first.status().as_u16(), calls.load(Ordering::SeqCst)), (200, 1));
    assert_eq!(permits.load(Ordering::SeqCst), 0);
    let second = service.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!((second.status().as_u16(), calls.load(Ordering::SeqCst)), (429, 1));
    assert_eq!(permits.load(Ordering::SeqCst), 0, "a refused request holds no permit");
    let third = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(third.status().as_u16(), 429);
}

#[tokio::test]
async fn ready_service_is_called_on_a_local_store() {
    let (engine, _) = engine();
    serve_and_refuse(LimitLayer::new().limit(limiter(&engine, "all", 1), key::constant("all")))
        .await;
}

#[tokio::test]
async fn ready_service_is_called_on_a_shared_store() {
    let store = GuardedStore::builder(Arc::new(MemoryStore::new())).build().unwrap();
    let engine: Engine = Engine::on(StoreHandle::shared(Arc::new(store)));
    let slow = Policy::per(1, std::time::Duration::from_secs(86_400)).capacity(1).build().unwrap();
    let limit = engine.limiter("all", slow).unwrap();
    serve_and_refuse(LimitLayer::new().limit(limit, key::constant("all"))).await;
}

#[tokio::test]
async fn several_limits_are_decided_on_a_shared_store() {
    let store = GuardedStore::builder(Arc::new(MemoryStore::new())).build().unwrap();
    let engine: Engine = Engine::on(StoreHandle::shared(Arc::new(store)));
    let slow = |capacity| Policy::per(1, std::time::Duration::from_secs(86_400)).capacity(capacity);
    let (a, b) = (slow(1).build().unwrap(), slow(5).build().unwrap());
    let b = engine.limiter("b", b).unwrap();
    let layer = LimitLayer::new()
        .limit(engine.limiter("a", a).unwrap(), key::constant("all"))
        .limit(b.clone(), key::constant("all"));
    serve_and_refuse(layer).await;
    assert_eq!(b.peek("all").cost(0).await.unwrap().remaining(), 4);
}

#[test]
fn nothing_is_decided_before_the_service_is_called() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "all", 1);
    let layer = LimitLayer::new().limit(limit.clone(), key::constant("all"));
    let mut service = layer.layer(Strict::default());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    drop(service);
    assert_eq!(super::remaining(&limit, "all"), 1);
}

#[test]
#[should_panic(expected = "need one store")]
fn limits_on_two_stores_panic() {
    let ((one, _), (other, _)) = (engine(), engine());
    let _ = LimitLayer::new()
        .limit(limiter(&one, "a", 1), key::client_ip())
        .limit(limiter(&other, "b", 1), key::client_ip());
}

#[test]
fn changing_a_clone_does_not_affect_the_original() {
    let (engine, _) = engine();
    let layer = LimitLayer::new().limit(limiter(&engine, "all", 1), key::client_ip());
    let shadow = layer.clone().shadow();
    assert!(format!("{shadow:?}").contains("shadow: true"));
    assert!(format!("{layer:?}").contains("shadow: false"));
}
