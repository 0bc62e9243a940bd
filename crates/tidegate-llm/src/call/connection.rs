//! How a connection fails: the kind of failure, the typed errors below it, and the text about it.
//!
//! Only typed errors and the kinds of I/O errors become text. The words of any other error are not
//! quoted, since an HTTP service may put a URL with a key into them.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::error::BoxError;

/// The most names of a certificate that an error shows.
const MAX_NAMES: usize = 5;

/// How a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// The connection was refused: no server listens there.
    Refused,
    /// The host name cannot be resolved.
    HostNotFound,
    /// The certificate was rejected, or the TLS handshake failed.
    Tls,
    /// No connection was made within the connect time-out.
    ConnectTimedOut,
    /// No connection was made for another reason.
    NotConnected,
    /// Nothing came for too long.
    TimedOut,
    /// It ended in the middle.
    Cut,
}

impl Broken {
    /// Whether there was a connection, so that a request may have been sent.
    #[must_use]
    pub const fn was_connected(self) -> bool {
        matches!(self, Self::TimedOut | Self::Cut)
    }

    /// Whether another attempt within seconds or minutes may succeed. A rejected certificate or a
    /// failed handshake stays until somebody changes the server or the configuration.
    #[must_use]
    pub const fn may_heal_soon(self) -> bool {
        !matches!(self, Self::Tls)
    }

    const fn summary(self) -> &'static str {
        match self {
            Self::TimedOut => "did not answer in time",
            Self::Cut => "broke the connection",
            _ => "cannot be reached",
        }
    }

    /// What is known of the reason without the error below.
    const fn detail(self) -> Option<&'static str> {
        match self {
            Self::Refused => Some("connection refused"),
            Self::HostNotFound => Some("host name cannot be resolved"),
            Self::Tls => Some("TLS handshake failed"),
            Self::ConnectTimedOut => Some("connect time-out"),
            Self::NotConnected | Self::TimedOut | Self::Cut => None,
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.summary())?;
        self.detail().map_or(Ok(()), |detail| write!(f, ": {detail}"))
    }
}

/// Why there is no connection, or no answer on it in time. An adapter looks for it in the sources of
/// what an HTTP service fails with; the client of this crate always provides it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The host name cannot be resolved.
    #[error("host name {host:?} cannot be resolved")]
    HostNotFound {
        /// The name.
        host: String,
        /// What the resolver said.
        #[source]
        source: BoxError,
    },
    /// No server listens at the address.
    #[error("connection refused by {}", Peer(.host, .addresses))]
    Refused {
        /// The host that was asked for.
        host: String,
        /// The addresses of the host. If there are several, the last one that was tried refused.
        addresses: Vec<SocketAddr>,
        /// What the operating system said.
        #[source]
        source: BoxError,
    },
    /// The certificate of the server was rejected.
    #[error("certificate of {host:?} ({}) is not trusted: {reason}", Names(.names))]
    Certificate {
        /// The host that was asked for.
        host: String,
        /// The DNS names that the certificate is for.
        names: Vec<String>,
        /// Why it was rejected, such as `unknown issuer`.
        reason: Cow<'static, str>,
    },
    /// The TLS handshake failed for another reason than the certificate.
    #[error("TLS handshake with {host:?} failed: {source}")]
    Handshake {
        /// The host that was asked for.
        host: String,
        /// What TLS said.
        #[source]
        source: BoxError,
    },
    /// There are no root certificates to check the certificate of a server against.
    #[error("the root certificates of the system cannot be loaded: {0}")]
    NoRoots(#[source] io::Error),
    /// Name resolution, TCP and TLS together took longer than the connect time-out.
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
    /// The proxy on the way cannot be reached itself.
    #[error("proxy {proxy} cannot be reached: {source}")]
    ProxyUnreachable {
        /// Host and port of the proxy.
        proxy: String,
        /// Why.
        #[source]
        source: Box<ConnectionError>,
    },
    /// The proxy on the way opened no tunnel to the server.
    #[error("proxy {proxy} opened no tunnel to {host:?}: {reason}")]
    Tunnel {
        /// Host and port of the proxy.
        proxy: String,
        /// The host that was asked for.
        host: String,
        /// What the proxy said.
        reason: Cow<'static, str>,
    },
    /// A request was sent, and the answer did not begin in time.
    #[error("first-byte time-out: the answer did not begin within {0:?}")]
    FirstByte(Duration),
    /// The answer had begun and stopped.
    #[error("idle time-out: nothing received for {0:?}")]
    Idle(Duration),
    /// Anything else.
    #[error("connection to {host:?} failed{}", Because(&**.source))]
    Other {
        /// The host that was asked for.
        host: String,
        /// What was seen below.
        #[source]
        source: BoxError,
    },
}

impl ConnectionError {
    /// The kind of failure.
    #[must_use]
    pub const fn broken(&self) -> Broken {
        match self {
            Self::ProxyUnreachable { source, .. } => source.broken(),
            Self::HostNotFound { .. } => Broken::HostNotFound,
            Self::Refused { .. } => Broken::Refused,
            Self::Certificate { .. } | Self::Handshake { .. } | Self::NoRoots(_) => Broken::Tls,
            Self::TimedOut(_) => Broken::ConnectTimedOut,
            Self::FirstByte(_) | Self::Idle(_) => Broken::TimedOut,
            Self::Tunnel { .. } | Self::Other { .. } => Broken::NotConnected,
        }
    }
}

/// `: ` and the reason that an error has among its sources, if there is one.
pub(crate) struct Because<'e>(pub(crate) &'e (dyn Error + 'static));

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        reason(self.0).map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

/// The text about a failed connection, with the reason as far as it is known.
pub(super) struct Described<'e>(pub(super) Broken, pub(super) Option<&'e BoxError>);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1.and_then(|source| reason(&**source)) {
            Some(reason) => write!(f, "{}: {reason}", self.0.summary()),
            None => self.0.fmt(f),
        }
    }
}

/// The reason of a failed connection.
pub(super) fn reason_of(broken: Broken, source: Option<&BoxError>) -> Option<String> {
    let found = source.and_then(|source| reason(&**source)).map(|reason| reason.to_string());
    found.or_else(|| broken.detail().map(str::to_owned))
}

/// An error and its sources. That of an I/O error is what it wraps, which `source` skips.
pub(crate) fn chain<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().map(|inner| inner as &(dyn Error + 'static)),
        None => error.source(),
    })
}

/// What may be quoted of an error.
enum Reason<'e> {
    Connection(&'e ConnectionError),
    Io(io::ErrorKind),
}

fn reason<'e>(error: &'e (dyn Error + 'static)) -> Option<Reason<'e>> {
    let typed = chain(error).find_map(|error| error.downcast_ref().map(Reason::Connection));
    typed.or_else(|| io_kind(error).map(Reason::Io))
}

/// The kind of the I/O error among the sources of an error, if it says something.
fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let kinds = chain(error).filter_map(|error| Some(error.downcast_ref::<io::Error>()?.kind()));
    kinds.filter(|kind| *kind != io::ErrorKind::Other).last()
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => error.fmt(f),
            Self::Io(kind) => kind.fmt(f),
        }
    }
}

/// The address of a host, or all of them.
struct Peer<'e>(&'e str, &'e [SocketAddr]);

impl fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            [] => write!(f, "{:?}", self.0),
            [address] => address.fmt(f),
            [first, rest @ ..] => {
                write!(f, "{:?} (one of {first}", self.0)?;
                rest.iter().try_for_each(|address| write!(f, ", {address}"))?;
                f.write_str(")")
            }
        }
    }
}

/// The names of a certificate.
struct Names<'e>(&'e [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0 else { return f.write_str("no names") };
        write!(f, "names: {first}")?;
        rest.iter().take(MAX_NAMES - 1).try_for_each(|name| write!(f, ", {name}"))?;
        match self.0.len().saturating_sub(MAX_NAMES) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(addresses: &[&str]) -> ConnectionError {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let source = io::Error::from(io::ErrorKind::ConnectionRefused).into();
        ConnectionError::Refused { host: "localhost".to_owned(), addresses, source }
    }

    #[test]
    fn every_failure_without_a_connection_was_not_sent() {
        let all = [
            (Broken::Refused, false, true),
            (Broken::HostNotFound, false, true),
            (Broken::Tls, false, false),
            (Broken::ConnectTimedOut, false, true),
            (Broken::NotConnected, false, true),
            (Broken::TimedOut, true, true),
            (Broken::Cut, true, true),
        ];
        for (broken, was_connected, may_heal_soon) in all {
            assert_eq!(broken.was_connected(), was_connected, "{broken:?}");
            assert_eq!(broken.may_heal_soon(), may_heal_soon, "{broken:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_address_or_all_that_it_may_be() {
        assert_eq!(refused(&["127.0.0.1:9"]).to_string(), "connection refused by 127.0.0.1:9");
        assert_eq!(
            refused(&["[::1]:9", "127.0.0.1:9"]).to_string(),
            r#"connection refused by "localhost" (one of [::1]:9, 127.0.0.1:9)"#
        );
    }

    #[test]
    fn names_of_a_certificate_are_bounded() {
        let certificate = |count: usize| {
            let names = (0..count).map(|number| format!("{number}.test")).collect();
            let (host, reason) = ("localhost".to_owned(), "unknown issuer".into());
            ConnectionError::Certificate { host, names, reason }.to_string()
        };
        let end = "is not trusted: unknown issuer";
        assert_eq!(certificate(0), format!(r#"certificate of "localhost" (no names) {end}"#));
        assert_eq!(certificate(1), format!(r#"certificate of "localhost" (names: 0.test) {end}"#));
        assert!(certificate(5).contains("(names: 0.test, 1.test, 2.test, 3.test, 4.test)"));
        assert!(certificate(7).contains("3.test, 4.test and 2 more)"));
    }

    #[test]
    fn the_text_of_unknown_errors_is_not_quoted_but_the_kind_of_an_io_error_is() {
        let secret = io::Error::other("GET https://host/path?key=secret");
        let source: BoxError = secret.into();
        assert_eq!(Described(Broken::Cut, Some(&source)).to_string(), "broke the connection");
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let source: BoxError = io::Error::other(reset).into();
        let text = Described(Broken::Cut, Some(&source)).to_string();
        assert_eq!(text, "broke the connection: connection reset");
        let source: BoxError = io::Error::other(refused(&["127.0.0.1:9"])).into();
        let text = Described(Broken::Refused, Some(&source)).to_string();
        assert_eq!(text, "cannot be reached: connection refused by 127.0.0.1:9");
        assert_eq!(
            Described(Broken::Refused, None).to_string(),
            "cannot be reached: connection refused"
        );
    }
}
