//! TLS to a PostgreSQL server: ours by choice of its parts, and always with certificates checked.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::DatabaseError;
use super::address::Address;

/// The TLS of a connection. Reads the certificates to trust from the disk, if there is to be any.
pub(super) fn connector(address: &Address) -> Result<MakeRustlsConnect, DatabaseError> {
    let mut roots = RootCertStore::empty();
    if address.is_encrypted() {
        let certificates = match address.trusted() {
            Some(file) => named(file)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        // Systems carry some that are not understood, and no matter.
        roots.add_parsable_certificates(certificates);
        if roots.is_empty() {
            return Err(DatabaseError::unavailable(io::Error::other(
                "there are no certificates to check that of its server against",
            )));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(DatabaseError::unavailable)?;
    Ok(MakeRustlsConnect::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn named(file: &Path) -> Result<Vec<CertificateDer<'static>>, DatabaseError> {
    let certificates = CertificateDer::pem_file_iter(file).map_err(DatabaseError::unavailable)?;
    certificates.collect::<Result<_, _>>().map_err(DatabaseError::unavailable)
}
