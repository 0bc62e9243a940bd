//! Liveness and readiness.
//!
//! The server is not ready while a limit with the failure rule *closed* denies everything because
//! the store is down: another node may do better. With the rules *open* and *local* this node
//! decides by itself, and removing it would only widen the outage. It is not ready either while it
//! shuts down.
//!
//! A readiness check probes the store, because without traffic nothing else would notice that it is
//! down.
//!
//! These endpoints need no token, so they name no limits.

use std::fmt;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tidegate::FailureRule;
use tidegate::guard::GuardedStore;
use tidegate_core::Limit;

use crate::api::body::json;
use crate::listener::drain::StopSignal;

/// Answers a liveness check.
pub(crate) fn liveness() -> Response {
    #[derive(Serialize)]
    struct Alive {
        status: &'static str,
    }
    json(StatusCode::OK, &Alive { status: "ok" })
}

/// Determines whether the server is ready. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Health {
    draining: StopSignal,
    store: Option<GuardedStore>,
    denying_limits: Arc<dyn Fn() -> usize + Send + Sync>,
}

impl Health {
    /// Creates the health of a server that is shutting down once `draining` is set. `denying_limits`
    /// returns the number of limits that currently deny because the store is down; see
    /// [`denying_limits`].
    pub(crate) fn new(
        draining: StopSignal,
        denying_limits: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Self {
        Self { draining, store: None, denying_limits: Arc::new(denying_limits) }
    }

    /// Adds a store that may fail, which each readiness check probes.
    pub(crate) fn with_store(self, store: Option<GuardedStore>) -> Self {
        Self { store, ..self }
    }

    /// Answers a readiness check: 200, or 503 with the reasons.
    pub(crate) async fn readiness(&self) -> Response {
        #[derive(Serialize)]
        struct Ready {
            status: &'static str,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            reasons: Vec<UnreadyReason>,
        }
        if let Some(store) = &self.store {
            store.check().await;
        }
        let reasons = self.reasons();
        let (code, status) = match reasons.is_empty() {
            true => (StatusCode::OK, "ready"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
        };
        json(code, &Ready { status, reasons })
    }

    fn reasons(&self) -> Vec<UnreadyReason> {
        let mut reasons = Vec::new();
        if self.draining.is_set() {
            reasons.push(UnreadyReason {
                code: "draining",
                detail: "the server is shutting down".to_owned(),
            });
        }
        let limits = (self.denying_limits)();
        if limits > 0 {
            let detail = format!(
                "the store is unavailable, and {limits} limits deny all requests until it is back"
            );
            reasons.push(UnreadyReason { code: "store", detail });
        }
        reasons
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("draining", &self.draining).finish_non_exhaustive()
    }
}

/// Why the server is not ready.
#[derive(Debug, Serialize)]
struct UnreadyReason {
    code: &'static str,
    detail: String,
}

/// Returns the number of limits that deny because their store is down.
pub(crate) fn denying_limits<'l>(
    store: &GuardedStore,
    limits: impl IntoIterator<Item = &'l Limit>,
) -> usize {
    if store.is_up() {
        return 0;
    }
    let closed = |limit: &&Limit| store.failure_rule(limit) == FailureRule::Closed;
    limits.into_iter().filter(closed).count()
}

#[cfg(test)]
mod tests {
    use tidegate::{Engine, MemoryStore, Policy};
    use tidegate_testkit::faulty_store::{FaultyStore, Timing};

    use super::*;
    use crate::listener::drain::Drain;

    #[tokio::test(start_paused = true)]
    async fn only_closed_limits_deny_while_the_store_is_down() {
        let policy = Policy::per_second(10).build().unwrap();
        let store = GuardedStore::builder(FaultyStore::new(MemoryStore::new(), Timing::Never))
            .build()
            .unwrap();
        let engine = Engine::on(store.clone());
        let limiter = engine.limiter("api", policy).unwrap();
        let ordinary = limiter.limit();
        let closed = ordinary.on_failure(FailureRule::Closed);
        assert_eq!(
            denying_limits(&store, [&ordinary, &closed]),
            0,
            "the guard has not noticed yet"
        );
        while store.is_up() {
            let _ = limiter.take("alice").await.unwrap();
        }
        assert_eq!(denying_limits(&store, [&ordinary]), 0);
        assert_eq!(denying_limits(&store, [&ordinary, &closed]), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_shuts_down_is_not_ready() {
        let drain = Drain::new();
        let health = Health::new(drain.signal(), || 0);
        assert_eq!(health.readiness().await.status(), StatusCode::OK);
        drain.drain(std::time::Duration::ZERO).await;
        assert_eq!(health.readiness().await.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(health.reasons()[0].code, "draining");
    }
}
