//! TLS in front of a server without it, with a certificate from a private authority.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::certificates::Certificates;

/// A TLS server on a loopback port that forwards everything to a plain server. Its certificate is
/// valid for `localhost` and 127.0.0.1.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    ca: PathBuf,
    _folder: TempDir,
    _runtime: Runtime,
}

impl TlsFront {
    /// Starts TLS in front of `server`.
    ///
    /// # Panics
    /// If no port, thread or temporary folder is available.
    #[must_use]
    pub fn start(server: SocketAddr) -> Self {
        let folder = tempfile::tempdir().expect("a folder for certificates");
        let files = Certificates::write(folder.path());
        let acceptor = TlsAcceptor::from(Arc::new(config(&files)));
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.expect("a free loopback port");
        let address = listener.local_addr().expect("a bound socket has an address");
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await?;
                    let mut server = TcpStream::connect(server).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { address, ca: files.ca, _folder: folder, _runtime: runtime }
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The path of the authority's certificate, in PEM format.
    #[must_use]
    pub fn ca(&self) -> &Path {
        &self.ca
    }
}

fn config(files: &Certificates) -> ServerConfig {
    let chain = CertificateDer::pem_file_iter(&files.certificate).expect("certificates");
    let chain = chain.collect::<Result<_, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(&files.key).expect("a key");
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .expect("a certificate that fits its key")
}
