//! A gateway in the making.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tidegate_llm::BoxError;
use tidegate_llm::client::Client;
use tidegate_llm::rate_limit::Books;
use tidegate_llm::telemetry::{Observer, Traced};
use tower_service::Service;

use crate::call_observer::{Nobody, Witness};
use crate::error::GatewayError;
use crate::gateway::Gateway;
use crate::request::body::{Http, Outbound};
use crate::state::routing_table::Ground;
use crate::upstream::settings::Upstream;

/// A [`Gateway`] in the making.
#[must_use = "a gateway is made by `build`"]
pub struct GatewayBuilder {
    books: Books,
    upstreams: Vec<Upstream>,
    observer: Arc<dyn Observer>,
    witness: Arc<dyn Witness>,
    http: Option<Http>,
}

impl GatewayBuilder {
    pub(crate) fn new(books: Books) -> Self {
        Self {
            books,
            upstreams: Vec::new(),
            observer: Arc::new(Traced),
            witness: Arc::new(Nobody),
            http: None,
        }
    }

    /// One more provider.
    pub fn upstream(mut self, upstream: Upstream) -> Self {
        self.upstreams.push(upstream);
        self
    }

    /// Who is told of permits, throttles and retries. Default: [`Traced`].
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Who hears of every call when it is over. Default: nobody.
    pub fn witness(mut self, witness: Arc<dyn Witness>) -> Self {
        self.witness = witness;
        self
    }

    /// The HTTP service underneath. Default: a [`Client`] of its own.
    pub fn http<H, B>(mut self, service: H) -> Self
    where
        H: Service<Request<Outbound>, Response = Response<B>> + Clone + Send + Sync + 'static,
        H::Error: Into<BoxError>,
        H::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.http = Some(Http::new(service));
        self
    }

    /// The gateway.
    ///
    /// # Errors
    /// If the upstreams contradict each other, if their limits cannot be kept, or if there is no
    /// HTTP client.
    pub fn build(self) -> Result<Gateway, GatewayError> {
        let http = match self.http {
            Some(http) => http,
            None => Http::new(Client::of_bodies()?),
        };
        let ground = Ground { books: self.books, observer: self.observer, http };
        Gateway::open(ground, self.witness, self.upstreams)
    }
}

impl fmt::Debug for GatewayBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayBuilder").field("upstreams", &self.upstreams).finish_non_exhaustive()
    }
}
