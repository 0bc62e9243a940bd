//! Which settings a request falls under: the same for all, or those of its route.

use std::fmt;

use http::Request;

use super::settings::Shared;

/// Where the settings of a request come from.
#[derive(Clone)]
pub(crate) enum Choice {
    /// The same for all.
    Same(Shared),
    /// By route.
    #[cfg(feature = "axum")]
    PerRoute(std::sync::Arc<crate::route::Table>),
    /// By method of a gRPC service.
    #[cfg(feature = "tonic")]
    PerMethod(std::sync::Arc<crate::grpc::Table>),
}

impl Choice {
    /// The settings for a request; `None` if it is not limited.
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
