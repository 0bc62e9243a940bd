//! Root certificates: those of the system, or a custom set.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use super::verifier::Verifier;
use crate::call::ConnectionError;

/// Root certificates to verify servers against, instead of those of the system. Set them in the
/// [extensions](http::Extensions) of a request. Cheap to clone; equal if the certificates are.
///
/// Only requests with equal roots share connections.
#[derive(Clone)]
pub struct Roots(Arc<Inner>);

struct Inner {
    certificates: Vec<CertificateDer<'static>>,
    tls: Arc<ClientConfig>,
}

impl Roots {
    /// Creates a set of roots from certificates in DER.
    ///
    /// # Errors
    /// Fails if there is no certificate, or one cannot be used.
    pub fn from_der(
        certificates: impl IntoIterator<Item = Vec<u8>>,
    ) -> Result<Self, ConnectionError> {
        let certificates: Vec<_> = certificates.into_iter().map(CertificateDer::from).collect();
        let mut roots = RootCertStore::empty();
        for (index, certificate) in certificates.iter().enumerate() {
            let number = index + 1;
            roots
                .add(certificate.clone())
                .map_err(|source| ConnectionError::Root { number, source: source.into() })?;
        }
        if certificates.is_empty() {
            return Err(ConnectionError::EmptyRoots);
        }
        Ok(Self(Arc::new(Inner { certificates, tls: Arc::new(tls_with_roots(roots)?) })))
    }

    pub(super) fn tls(&self) -> &Arc<ClientConfig> {
        &self.0.tls
    }
}

impl PartialEq for Roots {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.certificates == other.0.certificates
    }
}

impl Eq for Roots {}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Roots").field(&self.0.certificates.len()).finish()
    }
}

/// Creates a TLS configuration that verifies servers against these roots, which must not be empty.
pub(super) fn tls_with_roots(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let verifier = Verifier::new(roots, provider)
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    // Verification is that of rustls; our wrapper only adds details to rejections.
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(builder.with_no_client_auth())
}

/// Creates a TLS configuration that rejects all servers, for a system without roots.
pub(super) fn tls_without_roots() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Loads the root certificates of the system, except those that rustls cannot parse.
pub(super) fn native() -> Result<RootCertStore, io::Error> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(loaded.certs);
    if added > 0 {
        return Ok(roots);
    }
    let reason = loaded.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
    Err(io::Error::new(io::ErrorKind::NotFound, reason))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    fn authority() -> Vec<u8> {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn roots_are_equal_by_their_certificates() {
        let (one, other) = (authority(), authority());
        let roots = |all: &[&Vec<u8>]| Roots::from_der(all.iter().map(|der| (*der).clone()));
        assert_eq!(roots(&[&one]).unwrap(), roots(&[&one]).unwrap());
        assert_ne!(roots(&[&one]).unwrap(), roots(&[&other]).unwrap());
        assert_ne!(roots(&[&one]).unwrap(), roots(&[&one, &other]).unwrap());
    }

    #[test]
    fn invalid_root_is_rejected_by_its_number() {
        assert!(matches!(Roots::from_der([]), Err(ConnectionError::EmptyRoots)));
        let error = Roots::from_der([authority(), b"no certificate".to_vec()]).unwrap_err();
        assert!(error.to_string().starts_with("root certificate 2 cannot be used: "), "{error}");
    }
}
