//! A policy for each method of gRPC services, in one layer.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use crate::layer::{Choice, LimitLayer, Limited, Shared};

/// A layer with a policy for each method.
///
/// A method goes before its service, and that before the default. What has no policy is not
/// limited.
///
/// ```
/// use tidegate::{Engine, Policy};
/// use tidegate_http::grpc::PerMethod;
/// use tidegate_http::key;
/// use tidegate_http::layer::LimitLayer;
///
/// let engine = Engine::new();
/// let reads = engine.limiter("reads", Policy::per_second(100).build()?)?;
/// let writes = engine.limiter("writes", Policy::per_second(5).build()?)?;
/// let by_client = |limiter| LimitLayer::new().limit(limiter, key::client_ip());
/// let limits = PerMethod::new()
///     .method("/ledger.v1.Ledger/Append", by_client(writes))
///     .service("ledger.v1.Ledger", by_client(reads));
/// // tonic::transport::Server::builder().layer(limits).add_service(..)
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct PerMethod(Arc<Table>);

/// The policies by name, without the slash in front.
#[derive(Clone, Default)]
pub(crate) struct Table {
    methods: HashMap<String, Shared>,
    services: HashMap<String, Shared>,
    otherwise: Option<Shared>,
}

impl PerMethod {
    /// No policies yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// With this policy for a method, written as on the wire, `/package.Service/Method`, or
    /// without the first slash.
    ///
    /// # Panics
    /// When it is anything else: it would limit nothing.
    pub fn method(mut self, path: impl AsRef<str>, policy: LimitLayer) -> Self {
        let name = bare(path.as_ref());
        let fits = name.split_once('/').is_some_and(|(service, method)| {
            !service.is_empty() && !method.is_empty() && !method.contains('/')
        });
        assert!(fits, "a method is written /package.Service/Method, not {:?}", path.as_ref());
        self.table().methods.insert(name.to_owned(), policy.into_shared());
        self
    }

    /// With this policy for all methods of a service that have none of their own. The service is
    /// written as tonic's `NamedService::NAME`, `package.Service`, or with a slash before it.
    ///
    /// # Panics
    /// When it is anything else: it would limit nothing.
    pub fn service(mut self, name: impl AsRef<str>, policy: LimitLayer) -> Self {
        let bare = bare(name.as_ref());
        let fits = !bare.is_empty() && !bare.contains('/');
        assert!(fits, "a service is written package.Service, not {:?}", name.as_ref());
        self.table().services.insert(bare.to_owned(), policy.into_shared());
        self
    }

    /// With this policy for all that has none of its own.
    pub fn otherwise(mut self, policy: LimitLayer) -> Self {
        self.table().otherwise = Some(policy.into_shared());
        self
    }

    fn table(&mut self) -> &mut Table {
        Arc::make_mut(&mut self.0)
    }
}

impl Table {
    pub(crate) fn settings(&self, path: &str) -> Option<&Shared> {
        let name = bare(path);
        let of_service = || self.services.get(name.split_once('/')?.0);
        self.methods.get(name).or_else(of_service).or(self.otherwise.as_ref())
    }
}

/// Without the slash in front.
fn bare(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}

impl<S> Layer<S> for PerMethod {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited::new(inner, Choice::PerMethod(self.0.clone()))
    }
}

impl fmt::Debug for PerMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.methods.keys()).entries(self.0.services.keys()).finish()
    }
}
