//! Reads the root certificates of a provider from a file.

use std::fs;
use std::path::PathBuf;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::values::value::Value;
use crate::violation::Rule;

/// Maximum size of a certificate file.
const MAX_SIZE: u64 = 16 << 20;

/// Parses the path of a file.
pub(crate) fn file(value: &Value<'_>) -> Result<PathBuf, Rule> {
    let text = value.to_text().ok().filter(|text| !text.is_empty());
    text.map(PathBuf::from).ok_or(Rule::CertificateFile)
}

/// Reads the certificates of a file, in DER, and checks that each can be a trust anchor.
pub(super) fn certificates(value: &Value<'_>) -> Result<Vec<Vec<u8>>, Rule> {
    let file = file(value)?;
    let unreadable = |error: std::io::Error| Rule::CertificateFileUnreadable(error.to_string());
    let size = fs::metadata(&file).map_err(unreadable)?.len();
    if size > MAX_SIZE {
        return Err(Rule::NoCertificates);
    }
    let text = fs::read(&file).map_err(unreadable)?;
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let number = certificates.len() + 1;
        let certificate = certificate.map_err(|_| Rule::InvalidCertificate(number))?;
        webpki::anchor_from_trusted_cert(&certificate)
            .map_err(|_| Rule::InvalidCertificate(number))?;
        certificates.push(certificate.to_vec());
    }
    if certificates.is_empty() { Err(Rule::NoCertificates) } else { Ok(certificates) }
}
