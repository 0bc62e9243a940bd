//! The tiers in front of a tonic service.

use tidegate::admission::Admission;
use tidegate_http::key;
use tidegate_http::layer::AdmissionLayer;

/// Give it to `tonic::transport::Server::builder().layer(..)`.
pub fn layer(admission: Admission) -> AdmissionLayer {
    AdmissionLayer::new(admission)
        .organization(key::header("x-organization"))
        .client(key::header("x-client-id"))
}
