//! A certificate authority for one server, and the server certificate that it signs.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// Paths of the certificate files of a TLS server.
#[derive(Debug)]
pub(super) struct Certificates {
    pub(super) ca: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Certificates {
    /// Generates certificates for `localhost` and 127.0.0.1 and writes them to a folder.
    pub(super) fn write(folder: &Path) -> Self {
        let files = Self {
            ca: folder.join("ca.pem"),
            certificate: folder.join("server.pem"),
            key: folder.join("server.key"),
        };
        let [ca, certificate, key] = make().expect("cannot generate certificates");
        for (path, text) in [(&files.ca, ca), (&files.certificate, certificate), (&files.key, key)]
        {
            fs::write(path, text).expect("cannot write to the server's folder");
        }
        files
    }
}

/// The authority, the server's certificate and the server's key, as PEM.
fn make() -> Result<[String; 3], Error> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::new([])?;
    ca.distinguished_name.push(DnType::CommonName, "Tidegate's tests");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = ca.self_signed(&ca_key)?;

    let key = KeyPair::generate()?;
    let mut server = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, "localhost");
    let certificate = server.signed_by(&key, &Issuer::new(ca, &ca_key))?;
    Ok([authority.pem(), certificate.pem(), key.serialize_pem()])
}
