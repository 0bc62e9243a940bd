//! Connection failures: kinds, typed errors and their text.
//!
//! Only typed errors and kinds of I/O errors appear in text. Messages of other errors are not
//! quoted, since an HTTP service may put a URL with a key into them.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;

use super::error::BoxError;

/// Maximum number of names of a certificate that an error shows.
const MAX_NAMES: usize = 5;

/// How a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionFailure {
    /// The connection was refused: no server listens at the address.
    Refused,
    /// The host name cannot be resolved.
    HostNotFound,
    /// The certificate was rejected, or the TLS handshake failed.
    Tls,
    /// No connection was made within the connect timeout.
    ConnectTimedOut,
    /// The connection failed for another reason.
    NotConnected,
    /// The server sent nothing for too long.
    TimedOut,
    /// The connection ended before the response was complete.
    Closed,
}

impl ConnectionFailure {
    /// Returns whether there was a connection, so that the request may have been sent.
    #[must_use]
    pub const fn was_connected(self) -> bool {
        matches!(self, Self::TimedOut | Self::Closed)
    }

    /// Returns whether a retry within seconds or minutes may succeed. A rejected certificate or a
    /// failed handshake persists until the server or the configuration changes.
    #[must_use]
    pub const fn may_heal_soon(self) -> bool {
        !matches!(self, Self::Tls)
    }

    const fn summary(self) -> &'static str {
        match self {
            Self::TimedOut => "did not answer in time",
            Self::Closed => "broke the connection",
            _ => "cannot be reached",
        }
    }

    /// Returns the reason implied by the kind, used if there is no source error.
    const fn detail(self) -> Option<&'static str> {
        match self {
            Self::Refused => Some("connection refused"),
            Self::HostNotFound => Some("host name cannot be resolved"),
            Self::Tls => Some("TLS handshake failed"),
            Self::ConnectTimedOut => Some("connect timeout"),
            Self::NotConnected | Self::TimedOut | Self::Closed => None,
        }
    }
}

impl fmt::Display for ConnectionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.summary())?;
        self.detail().map_or(Ok(()), |detail| write!(f, ": {detail}"))
    }
}

/// Why a connection failed, or brought no response. Adapters look for it among the sources of an
/// HTTP service's error. It is the error type of this crate's client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The host name cannot be resolved.
    #[error("host name {host:?} cannot be resolved")]
    HostNotFound {
        /// The host name.
        host: String,
        /// Error of the resolver.
        #[source]
        source: BoxError,
    },
    /// The connection was refused: no server listens at the address.
    #[error("connection refused by {}", Addresses(.host, .addresses))]
    Refused {
        /// Host of the request.
        host: String,
        /// Addresses of the host. If there are several, the last one tried refused.
        addresses: Vec<SocketAddr>,
        /// Error of the operating system.
        #[source]
        source: BoxError,
    },
    /// The certificate of the server was rejected.
    #[error("certificate of {host:?} ({}) is not trusted: {reason}", Names(.names))]
    Certificate {
        /// Host of the request.
        host: String,
        /// DNS names in the certificate.
        names: Vec<String>,
        /// Reason of the rejection, such as `unknown issuer`.
        reason: Cow<'static, str>,
    },
    /// The TLS handshake failed for a reason other than the certificate.
    #[error("TLS handshake with {host:?} failed: {source}")]
    Handshake {
        /// Host of the request.
        host: String,
        /// Error of the TLS library.
        #[source]
        source: BoxError,
    },
    /// The root certificates of the system could not be loaded.
    #[error("the root certificates of the system cannot be loaded: {0}")]
    NoRoots(#[source] io::Error),
    /// Name resolution, TCP and TLS together took longer than the connect timeout.
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
    /// The proxy itself cannot be reached.
    #[error("proxy {proxy} cannot be reached: {source}")]
    ProxyUnreachable {
        /// Host and port of the proxy.
        proxy: String,
        /// Reason.
        #[source]
        source: Box<ConnectionError>,
    },
    /// The proxy did not open a tunnel to the server.
    #[error("proxy {proxy} did not open a tunnel to {host:?}: {reason}")]
    Tunnel {
        /// Host and port of the proxy.
        proxy: String,
        /// Host of the request.
        host: String,
        /// Reason, such as the status of the proxy's response.
        reason: Cow<'static, str>,
    },
    /// The request was sent, and the response did not begin in time.
    #[error("first-byte timeout: the response did not begin within {0:?}")]
    FirstByte(Duration),
    /// The response began and then stalled.
    #[error("idle timeout: nothing received for {0:?}")]
    Idle(Duration),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    TlsSetup(#[source] BoxError),
    /// A set of root certificates is empty.
    #[error("no root certificate: pass at least one")]
    EmptyRoots,
    /// A root certificate cannot be used.
    #[error("root certificate {number} cannot be used: {source}")]
    Root {
        /// Position of the certificate, counted from one.
        number: usize,
        /// Reason.
        #[source]
        source: BoxError,
    },
    /// The proxy cannot reach the server.
    #[error("proxy {proxy} returned status {status}")]
    ProxyStatus {
        /// Host and port of the proxy.
        proxy: String,
        /// Status of its response.
        status: StatusCode,
    },
    /// The proxy did not respond.
    #[error("proxy {proxy} did not respond")]
    ProxyTimedOut {
        /// Host and port of the proxy.
        proxy: String,
    },
    /// The request was not sent because there was no connection.
    #[error("the request was not sent: no connection{}", Because(&**.0))]
    NotSent(#[source] BoxError),
    /// The connection failed after the request, or a part of it, was sent.
    #[error("the request got no response: {0}")]
    NoResponse(#[source] BoxError),
    /// Any other failure.
    #[error("connection to {host:?} failed{}", Because(&**.source))]
    Other {
        /// Host of the request.
        host: String,
        /// Underlying error.
        #[source]
        source: BoxError,
    },
}

impl ConnectionError {
    /// Returns the kind of failure.
    #[must_use]
    pub fn kind(&self) -> ConnectionFailure {
        match self {
            Self::ProxyUnreachable { source, .. } => source.kind(),
            Self::NotSent(source) => {
                find_kind(&**source).unwrap_or(ConnectionFailure::NotConnected)
            }
            Self::NoResponse(source) => find_kind(&**source).unwrap_or(ConnectionFailure::Closed),
            Self::HostNotFound { .. } => ConnectionFailure::HostNotFound,
            Self::Refused { .. } => ConnectionFailure::Refused,
            Self::Certificate { .. }
            | Self::Handshake { .. }
            | Self::NoRoots(_)
            | Self::TlsSetup(_)
            | Self::EmptyRoots
            | Self::Root { .. } => ConnectionFailure::Tls,
            Self::TimedOut(_) => ConnectionFailure::ConnectTimedOut,
            Self::FirstByte(_) | Self::Idle(_) => ConnectionFailure::TimedOut,
            Self::Tunnel { .. }
            | Self::ProxyStatus { .. }
            | Self::ProxyTimedOut { .. }
            | Self::Other { .. } => ConnectionFailure::NotConnected,
        }
    }

    /// Returns whether the error only wraps another one that may be more specific.
    const fn is_wrapper(&self) -> bool {
        matches!(self, Self::NotSent(_) | Self::NoResponse(_))
    }
}

/// Returns the kind of failure according to the sources of an error: that of a [`ConnectionError`],
/// or [`ConnectionFailure::Refused`] for an I/O error of that kind.
pub(crate) fn find_kind(error: &(dyn Error + 'static)) -> Option<ConnectionFailure> {
    chain(error).find_map(|error| {
        if let Some(error) = error.downcast_ref::<ConnectionError>() {
            return Some(error.kind());
        }
        let io = error.downcast_ref::<io::Error>();
        io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused)
            .then_some(ConnectionFailure::Refused)
    })
}

/// Displays `: ` and the reason found among the sources of an error, if any.
struct Because<'e>(&'e (dyn Error + 'static));

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        reason(self.0).map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

/// Displays a connection failure with its reason, as far as known.
pub(super) struct Described<'e>(pub(super) ConnectionFailure, pub(super) Option<&'e BoxError>);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1.and_then(|source| reason(&**source)) {
            Some(reason) => write!(f, "{}: {reason}", self.0.summary()),
            None => self.0.fmt(f),
        }
    }
}

/// Returns the reason of a connection failure.
pub(super) fn reason_of(kind: ConnectionFailure, source: Option<&BoxError>) -> Option<String> {
    let found = source.and_then(|source| reason(&**source)).map(|reason| reason.to_string());
    found.or_else(|| kind.detail().map(str::to_owned))
}

/// Iterates over an error and its sources. Includes the error wrapped in an I/O error, which
/// `source` skips.
pub(crate) fn chain<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().map(|inner| inner as &(dyn Error + 'static)),
        None => error.source(),
    })
}

/// Part of an error that is safe to show.
enum Reason<'e> {
    Connection(&'e ConnectionError),
    Io(io::ErrorKind),
}

fn reason<'e>(error: &'e (dyn Error + 'static)) -> Option<Reason<'e>> {
    let mut typed = chain(error).filter_map(|error| error.downcast_ref::<ConnectionError>());
    let typed = typed.find(|error| !error.is_wrapper()).map(Reason::Connection);
    typed.or_else(|| io_kind(error).map(Reason::Io))
}

/// Returns the kind of the innermost I/O error among the sources, unless it is `Other`.
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

/// Displays the address of a host, or all of them.
struct Addresses<'e>(&'e str, &'e [SocketAddr]);

impl fmt::Display for Addresses<'_> {
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

/// Displays the names of a certificate.
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
    fn was_connected_and_may_heal_soon_by_kind() {
        let all = [
            (ConnectionFailure::Refused, false, true),
            (ConnectionFailure::HostNotFound, false, true),
            (ConnectionFailure::Tls, false, false),
            (ConnectionFailure::ConnectTimedOut, false, true),
            (ConnectionFailure::NotConnected, false, true),
            (ConnectionFailure::TimedOut, true, true),
            (ConnectionFailure::Closed, true, true),
        ];
        for (kind, was_connected, may_heal_soon) in all {
            assert_eq!(kind.was_connected(), was_connected, "{kind:?}");
            assert_eq!(kind.may_heal_soon(), may_heal_soon, "{kind:?}");
        }
    }

    #[test]
    fn refused_error_shows_all_addresses() {
        assert_eq!(refused(&["127.0.0.1:9"]).to_string(), "connection refused by 127.0.0.1:9");
        assert_eq!(
            refused(&["[::1]:9", "127.0.0.1:9"]).to_string(),
            r#"connection refused by "localhost" (one of [::1]:9, 127.0.0.1:9)"#
        );
    }

    #[test]
    fn shown_certificate_names_are_bounded() {
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
    fn unknown_errors_are_not_quoted_but_io_kinds_are() {
        let secret = io::Error::other("GET https://host/path?key=secret");
        let source: BoxError = secret.into();
        assert_eq!(
            Described(ConnectionFailure::Closed, Some(&source)).to_string(),
            "broke the connection"
        );
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let source: BoxError = io::Error::other(reset).into();
        let text = Described(ConnectionFailure::Closed, Some(&source)).to_string();
        assert_eq!(text, "broke the connection: connection reset");
        let source: BoxError = io::Error::other(refused(&["127.0.0.1:9"])).into();
        let text = Described(ConnectionFailure::Refused, Some(&source)).to_string();
        assert_eq!(text, "cannot be reached: connection refused by 127.0.0.1:9");
        assert_eq!(
            Described(ConnectionFailure::Refused, None).to_string(),
            "cannot be reached: connection refused"
        );
    }
}
