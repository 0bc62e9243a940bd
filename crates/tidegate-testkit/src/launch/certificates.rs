//! A certificate authority for one server, and the certificate that it signs.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// Where the files of a TLS server are.
#[derive(Debug)]
pub(super) struct Certificates {
    pub(super) ca: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Certificates {
    /// Makes them for `localhost` and 127.0.0.1 and writes them into a folder.
    pub(super) fn write(folder: &Path) -> Self {
        let files = Self {
            ca: folder.join("ca.pem"),
            certificate: folder.join("server.pem"),
            key: folder.join("server.key"),
        };
        let [ca, certificate, key] = make().expect("certificates can be made");
        for (path, text) in [(&files.ca, ca), (&files.certificate, certificate), (&files.key, key)]
        {
            fs::write(path, text).expect("the folder of a server can be written");
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
