//! Root certificates: those of the system, or those of a file.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use super::ClientError;
use super::verifier::Verifier;

/// Root certificates that the servers of a request are checked against, in place of those of the
/// system. A request carries them among its [extensions](http::Extensions). Cheap to clone; equal
/// if the certificates are.
///
/// Connections are shared only by requests with equal roots.
#[derive(Clone)]
pub struct Roots(Arc<Inner>);

struct Inner {
    certificates: Vec<CertificateDer<'static>>,
    tls: Arc<ClientConfig>,
}

impl Roots {
    /// Roots from certificates in DER.
    ///
    /// # Errors
    /// If there is none, or one cannot be used.
    pub fn from_der(certificates: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, ClientError> {
        let certificates: Vec<_> = certificates.into_iter().map(CertificateDer::from).collect();
        let mut roots = RootCertStore::empty();
        for (index, certificate) in certificates.iter().enumerate() {
            let number = index + 1;
            roots
                .add(certificate.clone())
                .map_err(|source| ClientError::Root { number, source: source.into() })?;
        }
        if certificates.is_empty() {
            return Err(ClientError::NoRoots);
        }
        Ok(Self(Arc::new(Inner { certificates, tls: Arc::new(checking(roots)?) })))
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

/// TLS that checks certificates against these roots, of which there is at least one.
pub(super) fn checking(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let verifier = Verifier::new(roots, provider)
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    // The verifier is that of rustls; ours only adds to what a rejection says.
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(builder.with_no_client_auth())
}

/// TLS that trusts nobody, for a machine without roots.
pub(super) fn trusting_nobody() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// The root certificates of the system. Systems carry some that rustls does not understand; those
/// are left out.
pub(super) fn native() -> Result<RootCertStore, io::Error> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(loaded.certs);
    if added > 0 {
        return Ok(roots);
    }
    let why = loaded.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
    Err(io::Error::new(io::ErrorKind::NotFound, why))
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
    fn what_is_no_root_is_refused_by_its_number() {
        assert!(matches!(Roots::from_der([]), Err(ClientError::NoRoots)));
        let error = Roots::from_der([authority(), b"no certificate".to_vec()]).unwrap_err();
        assert!(error.to_string().starts_with("root certificate 2 cannot be used: "), "{error}");
    }
}
