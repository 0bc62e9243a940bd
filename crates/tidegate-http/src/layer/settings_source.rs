//! Selects the settings of a request: one set for all requests, or one per route or method.

use std::fmt;

use http::Request;

use super::settings::SharedSettings;

/// Source of the settings of a request.
#[derive(Clone)]
pub(crate) enum SettingsSource {
    /// One set for all requests.
    Fixed(SharedSettings),
    /// By axum route.
    #[cfg(feature = "axum")]
    PerRoute(std::sync::Arc<crate::route::Table>),
    /// By gRPC method.
    #[cfg(feature = "tonic")]
    PerMethod(std::sync::Arc<crate::grpc::Table>),
}

impl SettingsSource {
    /// Returns the settings for a request, or `None` if it is not limited.
    pub(super) fn settings<B>(&self, request: &Request<B>) -> Option<&SharedSettings> {
        match self {
            Self::Fixed(settings) => {
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

impl fmt::Debug for SettingsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Choice")
    }
}
