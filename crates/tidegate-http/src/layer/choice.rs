//! Selects the settings of a request: one set for all requests, or one per route or method.

use std::fmt;

use http::Request;

use super::settings::Shared;

/// Source of the settings of a request.
#[derive(Clone)]
pub(crate) enum Choice {
    /// One set for all requests.
    Same(Shared),
    /// By axum route.
    #[cfg(feature = "axum")]
    PerRoute(std::sync::Arc<crate::route::Table>),
    /// By gRPC method.
    #[cfg(feature = "tonic")]
    PerMethod(std::sync::Arc<crate::grpc::Table>),
}

impl Choice {
    /// Returns the settings for a request, or `None` if it is not limited.
    pub(super) fn settings<B>(&self, request: &Request<B>) -> Option<&Shared> {
        match self {
            Self::Same(settings) => {
                let _ = request;
                Some(settings)
            }
            #[cfg(feature = "axum")]
            Self::PerRoute(table) => table.settings(request),
            #[cfg(feature = "tonic")]
            Self::PerMethod(table) => table.settings(request.uri().path()),
        }
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Choice")
    }
}
