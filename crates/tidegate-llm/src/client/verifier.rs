//! Certificate verification of rustls, with rejections that name the host, the names in the
//! certificate and the reason.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::VerifierBuilderError;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use webpki::EndEntityCert;

use crate::call::ConnectionError;

/// Verifies the certificates of servers.
#[derive(Debug)]
pub(super) struct Verifier(Arc<WebPkiServerVerifier>);

impl Verifier {
    /// Creates a verifier with these roots. Fails if there are none.
    pub(super) fn new(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().map(Self)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let checked =
            self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        checked.map_err(|error| match error {
            Error::InvalidCertificate(error) => rejected(end_entity, server_name, &error),
            error => error,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn rejected(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    error: &CertificateError,
) -> Error {
    let names = EndEntityCert::try_from(certificate)
        .map(|certificate| certificate.valid_dns_names().map(str::to_owned).collect())
        .unwrap_or_default();
    let host = server_name.to_str().into_owned();
    let error = ConnectionError::Certificate { host, names, reason: reason(error) };
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

/// Returns a short text for the reason of a rejection.
fn reason(error: &CertificateError) -> Cow<'static, str> {
    match error {
        CertificateError::UnknownIssuer => "unknown issuer".into(),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("expired at {}", instant(*not_after)).into()
        }
        CertificateError::Expired => "expired".into(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("not valid before {}", instant(*not_before)).into()
        }
        CertificateError::NotValidYet => "not valid yet".into(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "not valid for this host name".into()
        }
        CertificateError::Revoked => "revoked".into(),
        CertificateError::BadEncoding => "not correctly encoded".into(),
        CertificateError::BadSignature => "wrong signature".into(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "not meant for servers".into()
        }
        CertificateError::Other(OtherError(error)) => match error.downcast_ref() {
            Some(webpki::Error::CaUsedAsEndEntity) => {
                "it is a CA certificate, not a server certificate".into()
            }
            _ => error.to_string().into(),
        },
        error => error.to_string().into(),
    }
}

fn instant(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds)
        .map_or_else(|_| "an unknown time".to_owned(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
    use std::time::Duration;

    use super::*;

    /// 2025-01-01.
    const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_735_689_600));

    /// Verifies a certificate signed by a trusted authority.
    fn verify(host: &str, change: impl FnOnce(&mut CertificateParams)) -> Result<(), String> {
        let key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let mut roots = RootCertStore::empty();
        roots.add(authority.self_signed(&key).unwrap().der().clone()).unwrap();
        let mut server = CertificateParams::new(["example.org".to_owned()]).unwrap();
        change(&mut server);
        let server_key = KeyPair::generate().unwrap();
        let certificate = server.signed_by(&server_key, &Issuer::new(authority, &key)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier::new(roots, provider).unwrap();
        let host = ServerName::try_from(host).unwrap();
        let checked = verifier.verify_server_cert(certificate.der(), &[], &host, &[], NOW);
        checked.map(drop).map_err(|error| match error {
            Error::InvalidCertificate(CertificateError::Other(OtherError(error))) => {
                error.downcast_ref::<ConnectionError>().unwrap().to_string()
            }
            error => panic!("{error:?}"),
        })
    }

    #[test]
    fn certificate_of_a_trusted_authority_is_accepted() {
        assert_eq!(verify("example.org", |_| ()), Ok(()));
    }

    #[test]
    fn rejection_shows_host_names_and_reason() {
        let rejection = |host, reason| {
            Err(format!("certificate of {host:?} (names: example.org) is not trusted: {reason}"))
        };
        let other = verify("other.test", |_| ());
        assert_eq!(other, rejection("other.test", "not valid for this host name"));
        let expired = verify("example.org", |it| it.not_after = date_time_ymd(2024, 1, 1));
        assert_eq!(expired, rejection("example.org", "expired at 2024-01-01T00:00:00Z"));
        let early = verify("example.org", |it| it.not_before = date_time_ymd(2026, 1, 1));
        assert_eq!(early, rejection("example.org", "not valid before 2026-01-01T00:00:00Z"));
        let authority =
            verify("example.org", |it| it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        let reason = "it is a CA certificate, not a server certificate";
        assert_eq!(authority, rejection("example.org", reason));
    }

    #[test]
    fn verifier_requires_roots() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        assert!(Verifier::new(RootCertStore::empty(), provider).is_err());
    }
}
