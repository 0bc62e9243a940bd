//! TLS to a PostgreSQL server. Certificates are always verified.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::DatabaseError;
use super::address::Address;

/// Creates the TLS connector. Reads the root certificates from disk if TLS may be used.
pub(super) fn connector(address: &Address) -> Result<MakeRustlsConnect, DatabaseError> {
    let mut roots = RootCertStore::empty();
    if address.is_encrypted() {
        let certificates = match address.root_certificates() {
            Some(file) => read_certificates(file)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        // System stores often contain a few unparsable certificates, which can be ignored.
        roots.add_parsable_certificates(certificates);
        if roots.is_empty() {
            return Err(DatabaseError::unavailable(io::Error::other(
                "no root certificates found to verify the server",
            )));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(DatabaseError::unavailable)?;
    Ok(MakeRustlsConnect::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, DatabaseError> {
    let certificates = CertificateDer::pem_file_iter(file).map_err(DatabaseError::unavailable)?;
    certificates.collect::<Result<_, _>>().map_err(DatabaseError::unavailable)
}
