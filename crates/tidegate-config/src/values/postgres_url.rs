//! The address of a PostgreSQL server: read and checked here, connected to elsewhere.
//!
//! The words are those of libpq as far as they have a meaning: of parameters those are refused that
//! nobody reads. A server on this machine may be named by the folder of its socket, as in
//! `postgres:///limits?host=/run/postgresql`.
//!
//! An address may hold a user and a password. Neither `Debug`, nor `Display`, nor any error shows
//! them.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tidegate_http::host::{HostPort, HostPortError};

use crate::values::url_parts::{number, percent_decode};

/// The port unless one is given.
const DEFAULT_PORT: u16 = 5432;

/// What may stand after `?` for the client, beside what is read here.
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

/// Why an address cannot be used. It never repeats what was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresUrlError {
    /// Not of the form of such an address.
    #[error(
        "must be postgres://[user[:password]@]host[:port][/database][?sslmode=require], or \
         postgres:///database?host=/folder/of/its/socket; special characters of a password are \
         written as in %40"
    )]
    Malformed,
    /// A port that is none.
    #[error("must have a port from 1 to 65535, or none, which is {DEFAULT_PORT}")]
    Port,
    /// A parameter that nobody reads.
    #[error(
        "must have no parameters after `?` but sslmode, sslrootcert, host, hostaddr, port, {}",
        CLIENT_PARAMETERS.join(", ")
    )]
    Parameter,
    /// A mode of encryption that is none.
    #[error("must have an sslmode of disable, prefer, require, verify-ca or verify-full")]
    SslMode,
    /// Credentials that would be shown with the rest.
    #[error("must have user and password before the host, as in postgres://user:password@host")]
    Misplaced,
    /// A fragment.
    #[error("must not have a fragment; a # of a password is written as %23")]
    Fragment,
}

/// Whether a connection is encrypted. Certificates are checked whatever the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostgresTls {
    /// It is not.
    Off,
    /// It is if the server can.
    Preferred,
    /// It is, or there is none: `require`, `verify-ca` and `verify-full`.
    Required,
}

/// The address of a PostgreSQL server.
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
    /// As it was given, with user and password, and without what is read here.
    text: String,
    tls: Option<PostgresTls>,
    trusted: Option<PathBuf>,
    /// The servers with their ports, and the database.
    shown: String,
}

impl PostgresUrl {
    /// The address as the client takes it, with user and password, and without `sslmode` and
    /// `sslrootcert`: for no log.
    #[must_use]
    pub fn with_credentials(&self) -> &str {
        &self.text
    }

    /// Whether the connection is encrypted, if `sslmode` says so.
    #[must_use]
    pub const fn tls(&self) -> Option<PostgresTls> {
        self.tls
    }

    /// The file of certificates to trust, if it is not those of the system: `sslrootcert`.
    #[must_use]
    pub fn trusted(&self) -> Option<&Path> {
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
        // A password may have a `?` in it, so what comes before the `@` comes off first.
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

/// What the servers of an address are.
#[derive(Default)]
struct Servers {
    /// Over the network, with their ports.
    hosts: Vec<String>,
    /// Folders of sockets.
    sockets: Vec<String>,
}

impl Servers {
    /// A server as it stands before the path, perhaps with a port.
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

    /// A server as a parameter names it: its port stands in another one.
    fn name(&mut self, host: &str) -> Result<(), PostgresUrlError> {
        if host.starts_with('/') {
            self.sockets.push(host.to_owned());
            return Ok(());
        }
        let server = HostPort::parse(host).ok().filter(|server| server.port().is_none());
        self.hosts.push(server.ok_or(PostgresUrlError::Malformed)?.host().to_owned());
        Ok(())
    }

    /// A parameter that is for the client.
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
            // Whoever forgets the host does not mean this machine.
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

/// A part with its escapes resolved. What must be escaped may not stand there as it is.
fn unescape_part(part: &str) -> Result<String, PostgresUrlError> {
    let is_plain = part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
    let bytes = percent_decode(part).filter(|_| is_plain);
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.filter(|text| !text.contains('\0')).ok_or(PostgresUrlError::Malformed)
}

impl fmt::Display for PostgresUrl {
    /// Without user, password and options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for PostgresUrl {
    /// Without user, password and options.
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
            let trusted = url.trusted().map(|file| file.to_string_lossy().into_owned());
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
