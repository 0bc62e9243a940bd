//! One layer with a policy per gRPC method.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use crate::layer::{LimitLayer, Limited, SettingsSource, SharedSettings};

/// A layer with a policy per method.
///
/// The policy of a method takes precedence over that of its service, and that over the default. A
/// method without any policy is not limited.
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

/// Policies by name, without the leading slash.
#[derive(Clone, Default)]
pub(crate) struct Table {
    methods: HashMap<String, SharedSettings>,
    services: HashMap<String, SharedSettings>,
    otherwise: Option<SharedSettings>,
}

impl PerMethod {
    /// Creates a layer without policies.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the policy for a method, written as on the wire, `/package.Service/Method`, or without
    /// the leading slash.
    ///
    /// # Panics
    /// Panics if `path` has any other form, because the policy would never apply.
    pub fn method(mut self, path: impl AsRef<str>, policy: LimitLayer) -> Self {
        let name = strip_slash(path.as_ref());
        let valid = name.split_once('/').is_some_and(|(service, method)| {
            !service.is_empty() && !method.is_empty() && !method.contains('/')
        });
        assert!(
            valid,
            "invalid gRPC method {:?}; write it as /package.Service/Method",
            path.as_ref()
        );
        self.table().methods.insert(name.to_owned(), policy.into_shared());
        self
    }

    /// Sets the policy for all methods of a service without one of their own. The service is
    /// written as tonic's `NamedService::NAME`, `package.Service`, or with a leading slash.
    ///
    /// # Panics
    /// Panics if `name` has any other form, because the policy would never apply.
    pub fn service(mut self, name: impl AsRef<str>, policy: LimitLayer) -> Self {
        let bare = strip_slash(name.as_ref());
        let valid = !bare.is_empty() && !bare.contains('/');
        assert!(valid, "invalid gRPC service {:?}; write it as package.Service", name.as_ref());
        self.table().services.insert(bare.to_owned(), policy.into_shared());
        self
    }

    /// Sets the policy for all methods without one of their own.
    pub fn fallback(mut self, policy: LimitLayer) -> Self {
        self.table().otherwise = Some(policy.into_shared());
        self
    }

    fn table(&mut self) -> &mut Table {
        Arc::make_mut(&mut self.0)
    }
}

impl Table {
    pub(crate) fn settings(&self, path: &str) -> Option<&SharedSettings> {
        let name = strip_slash(path);
        let of_service = || self.services.get(name.split_once('/')?.0);
        self.methods.get(name).or_else(of_service).or(self.otherwise.as_ref())
    }
}

/// Strips the leading slash.
fn strip_slash(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}

impl<S> Layer<S> for PerMethod {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited::new(inner, SettingsSource::PerMethod(self.0.clone()))
    }
}

impl fmt::Debug for PerMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.methods.keys()).entries(self.0.services.keys()).finish()
    }
}
