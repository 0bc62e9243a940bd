//! PostgreSQL URLs. This module parses and checks them; it does not connect.
//!
//! The syntax is that of libpq. Parameters without effect are rejected. A local server can be given
//! by its socket directory, as in `postgres:///limits?host=/run/postgresql`.
//!
//! A URL may contain a user and a password. `Debug`, `Display` and errors never show them.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tidegate_http::host::{HostPort, HostPortError};

use crate::values::url_parts::{number, percent_decode};

/// Port used if the URL has none.
const DEFAULT_PORT: u16 = 5432;

/// Query parameters that are passed to the client unchanged.
const CLIENT_PARAMETERS: [&str; 12] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "options",
    "sslnegotiation",
    "target_session_attrs",
    "tcp_user_timeout",
];

/// An invalid PostgreSQL URL. Its text never repeats the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresUrlError {
    /// Not a PostgreSQL URL.
    #[error(
        "must be postgres://[user[:password]@]host[:port][/database][?sslmode=require], or \
         postgres:///database?host=/directory/of/its/socket; percent-encode special characters of \
         a password, such as %40 for @"
    )]
    Malformed,
    /// An invalid port.
    #[error("must have a port from 1 to 65535, or none for the default, {DEFAULT_PORT}")]
    Port,
    /// An unsupported query parameter.
    #[error(
        "must have no query parameters other than sslmode, sslrootcert, host, hostaddr, port, {}",
        CLIENT_PARAMETERS.join(", ")
    )]
    Parameter,
    /// An unknown `sslmode`.
    #[error("must have the sslmode disable, prefer, require, verify-ca or verify-full")]
    SslMode,
    /// User or password among the query parameters, where they might be shown.
    #[error(
        "must have user and password before the host, as in postgres://user:password@host, not as \
         query parameters"
    )]
    Misplaced,
    /// A fragment (`#...`).
    #[error("must not have a fragment; write a # in a password as %23")]
    Fragment,
}

/// Whether connections are encrypted. Certificates are always verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostgresTls {
    /// Never encrypted: `disable`.
    Off,
    /// Encrypted if the server supports it: `prefer`.
    Preferred,
    /// Always encrypted: `require`, `verify-ca` and `verify-full`.
    Required,
}

/// The URL of a PostgreSQL database.
///
/// ```
/// use tidegate_config::PostgresUrl;
/// let url: PostgresUrl = "postgres://gate:secret@db.internal/limits?sslmode=require".parse()?;
/// assert_eq!(url.to_string(), "postgres://db.internal:5432/limits");
/// assert!(!format!("{url:?}").contains("secret"));
/// # Ok::<(), tidegate_config::PostgresUrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    /// The URL with credentials, without the parameters that are handled here.
    text: String,
    tls: Option<PostgresTls>,
    trusted: Option<PathBuf>,
    /// Servers, ports and database, without credentials.
    shown: String,
}

impl PostgresUrl {
    /// Returns the URL for the client, including credentials, without `sslmode` and `sslrootcert`.
    /// Do not log it.
    #[must_use]
    pub fn with_credentials(&self) -> &str {
        &self.text
    }

    /// Returns the encryption mode, if `sslmode` is given.
    #[must_use]
    pub const fn tls(&self) -> Option<PostgresTls> {
        self.tls
    }

    /// Returns the file of root certificates (`sslrootcert`); `None` means those of the system.
    #[must_use]
    pub fn root_certificates(&self) -> Option<&Path> {
        self.trusted.as_deref()
    }
}

impl FromStr for PostgresUrl {
    type Err = PostgresUrlError;

    fn from_str(text: &str) -> Result<Self, PostgresUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(PostgresUrlError::Malformed)?;
        if !["postgres", "postgresql"].contains(&scheme) {
            return Err(PostgresUrlError::Malformed);
        }
        if rest.contains('#') {
            return Err(PostgresUrlError::Fragment);
        }
        // Split at `@` first, because a password may contain `?`.
        let (credentials, rest) = rest.split_once('@').unwrap_or(("", rest));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        for part in [credentials, authority, database] {
            unescape_part(part)?;
        }
        if credentials.contains('/') || database.contains('/') {
            return Err(PostgresUrlError::Malformed);
        }
        let mut servers = Servers::default();
        for server in authority.split(',').filter(|_| !authority.is_empty()) {
            servers.add(server)?;
        }
        let (mut tls, mut trusted, mut client_parameters) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(PostgresUrlError::Malformed)?;
            let decoded = unescape_part(value)?;
            match name {
                "sslmode" => tls = Some(mode(&decoded)?),
                "sslrootcert" => trusted = (decoded != "system").then(|| decoded.into()),
                "user" | "password" => return Err(PostgresUrlError::Misplaced),
                _ => {
                    servers.read(name, &decoded)?;
                    client_parameters.push(pair);
                }
            }
        }
        let shown = servers.shown(database)?;
        let base = text[..text.len() - query.len()].trim_end_matches('?');
        let mark = if client_parameters.is_empty() { "" } else { "?" };
        let text = format!("{base}{mark}{}", client_parameters.join("&"));
        Ok(Self { text, tls, trusted, shown })
    }
}

/// The servers of a URL.
#[derive(Default)]
struct Servers {
    /// Network hosts, with ports.
    hosts: Vec<String>,
    /// Socket directories.
    sockets: Vec<String>,
}

impl Servers {
    /// Adds a server of the authority part, which may have a port.
    fn add(&mut self, server: &str) -> Result<(), PostgresUrlError> {
        let (folder, port) = server.split_once(':').unwrap_or((server, ""));
        let folder = unescape_part(folder)?;
        if folder.starts_with('/') {
            if !port.is_empty() {
                is_port(port)?;
            }
            self.sockets.push(folder);
            return Ok(());
        }
        let server = HostPort::parse(server).map_err(|error| match error {
            HostPortError::Port => PostgresUrlError::Port,
            _ => PostgresUrlError::Malformed,
        })?;
        self.hosts.push(format!("{}:{}", server.host(), server.port().unwrap_or(DEFAULT_PORT)));
        Ok(())
    }

    /// Adds a server of the `host` parameter, which has no port.
    fn name(&mut self, host: &str) -> Result<(), PostgresUrlError> {
        if host.starts_with('/') {
            self.sockets.push(host.to_owned());
            return Ok(());
        }
        let server = HostPort::parse(host).ok().filter(|server| server.port().is_none());
        self.hosts.push(server.ok_or(PostgresUrlError::Malformed)?.host().to_owned());
        Ok(())
    }

    /// Checks a parameter that is passed to the client.
    fn read(&mut self, name: &str, value: &str) -> Result<(), PostgresUrlError> {
        match name {
            "host" => value.split(',').try_for_each(|host| self.name(host)),
            "hostaddr" => {
                for address in value.split(',') {
                    let address: IpAddr =
                        address.parse().map_err(|_| PostgresUrlError::Malformed)?;
                    self.hosts.push(address.to_string());
                }
                Ok(())
            }
            "port" => value.split(',').try_for_each(is_port),
            _ if CLIENT_PARAMETERS.contains(&name) => Ok(()),
            _ => Err(PostgresUrlError::Parameter),
        }
    }

    fn shown(&self, database: &str) -> Result<String, PostgresUrlError> {
        let (hosts, sockets) = (self.hosts.join(","), self.sockets.join(","));
        match (hosts.is_empty(), sockets.is_empty()) {
            // A missing host is more likely a mistake than a request for the local machine.
            (true, true) => Err(PostgresUrlError::Malformed),
            (false, true) => Ok(format!("postgres://{hosts}/{database}")),
            _ => Ok(format!("postgres://{hosts}/{database}?host={sockets}")),
        }
    }
}

fn is_port(text: &str) -> Result<(), PostgresUrlError> {
    let port: Option<u16> = number(text).filter(|port| *port > 0);
    port.map(drop).ok_or(PostgresUrlError::Port)
}

fn mode(text: &str) -> Result<PostgresTls, PostgresUrlError> {
    match text {
        "disable" => Ok(PostgresTls::Off),
        "prefer" => Ok(PostgresTls::Preferred),
        "require" | "verify-ca" | "verify-full" => Ok(PostgresTls::Required),
        _ => Err(PostgresUrlError::SslMode),
    }
}

/// Percent-decodes a part of the URL. Rejects characters that must be escaped.
fn unescape_part(part: &str) -> Result<String, PostgresUrlError> {
    let is_plain = part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
    let bytes = percent_decode(part).filter(|_| is_plain);
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.filter(|text| !text.contains('\0')).ok_or(PostgresUrlError::Malformed)
}

impl fmt::Display for PostgresUrl {
    /// Omits user, password and options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for PostgresUrl {
    /// Omits user, password and options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_urls_hide_credentials() {
        for (text, shown) in [
            ("postgres://host", "postgres://host:5432/"),
            ("postgresql://u:secret@host:7/db", "postgres://host:7/db"),
            ("postgres://u@[::1]/db?sslmode=disable", "postgres://[::1]:5432/db"),
            ("postgres://u:secret%40@a,b:6/db", "postgres://a:5432,b:6/db"),
            ("postgres://u:secret?x=y@host/db?options=-c%20x", "postgres://host:5432/db"),
            ("postgres:///db?host=/run/postgresql", "postgres:///db?host=/run/postgresql"),
            ("postgres://u:secret@%2Frun%2Fpg/db", "postgres:///db?host=/run/pg"),
            ("postgres:///db?hostaddr=10.0.0.7&port=6432", "postgres://10.0.0.7/db"),
        ] {
            let url: PostgresUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            let for_client = text.strip_suffix("?sslmode=disable").unwrap_or(text);
            assert_eq!(url.with_credentials(), for_client);
            assert!(!format!("{url:?}").contains("secret"));
        }
    }

    #[test]
    fn tls_parameters_are_read_and_removed() {
        let read = |query: &str| {
            let url: PostgresUrl = format!("postgres://host/db?{query}").parse().unwrap();
            let trusted = url.root_certificates().map(|file| file.to_string_lossy().into_owned());
            (url.tls(), trusted, url.with_credentials().to_owned())
        };
        let bare = "postgres://host/db".to_owned();
        assert_eq!(read(""), (None, None, bare.clone()));
        assert_eq!(read("sslmode=disable"), (Some(PostgresTls::Off), None, bare.clone()));
        let both = "sslmode=verify-full&sslrootcert=/etc/my%20ca.pem";
        let file = Some("/etc/my ca.pem".to_owned());
        assert_eq!(read(both), (Some(PostgresTls::Required), file, bare.clone()));
        let among = "connect_timeout=3&sslmode=prefer&sslrootcert=system&keepalives=0";
        let rest = format!("{bare}?connect_timeout=3&keepalives=0");
        assert_eq!(read(among), (Some(PostgresTls::Preferred), None, rest));
    }

    #[test]
    fn invalid_urls_are_rejected_without_being_repeated() {
        use PostgresUrlError::{Fragment, Malformed, Misplaced, Parameter, Port, SslMode};
        for (text, error) in [
            ("postgres:host", Malformed),
            ("postgres://", Malformed),
            ("mysql://host", Malformed),
            ("postgres://u:sec ret@host", Malformed),
            ("postgres://u:secret%zz@host", Malformed),
            ("postgres://u:secret@word@host", Malformed),
            ("postgres://host/a/b", Malformed),
            ("postgres://host:0/db", Port),
            ("postgres://host:secret", Port),
            ("postgres://u:sec#ret@host", Fragment),
            ("postgres://host/db?password=secret", Misplaced),
            ("postgres://host/db?pass%77ord=secret", Parameter),
            ("postgres://host/db?sslmode=secret", SslMode),
            ("postgres://host/db?secret", Malformed),
            ("postgres://host/db?sslrootcert=%zz", Malformed),
            ("postgres:///db", Malformed),
            ("postgres:///db?host=", Malformed),
            ("postgres:///db?host=/run&port=0", Port),
            ("postgres://host/db?options=u@secret", Malformed),
        ] {
            assert_eq!(text.parse::<PostgresUrl>(), Err(error), "{text}");
            assert!(!error.to_string().contains("secret"));
        }
    }
}
