//! The connection settings of a PostgreSQL database.
//!
//! [`PostgresUrl`] parses the URL. This module chooses the encryption if the URL does not: none to
//! the local machine, and otherwise TLS if the server supports it. Certificates and host names are
//! always verified, whatever the mode.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr as _;

use tidegate_config::{PostgresTls, PostgresUrl, PostgresUrlError};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::super::DatabaseError;

/// A parsed URL. `Debug` does not show its password.
#[derive(Debug)]
pub(super) struct Address {
    config: Config,
    root_certificates: Option<PathBuf>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, DatabaseError> {
        let url: PostgresUrl = url.parse()?;
        // The error of the driver may repeat parts of the URL, so it is dropped.
        let mut config = Config::from_str(url.with_credentials())
            .map_err(|_| DatabaseError::Address(PostgresUrlError::Malformed))?;
        config.ssl_mode(match url.tls() {
            Some(PostgresTls::Off) => SslMode::Disable,
            Some(PostgresTls::Preferred) => SslMode::Prefer,
            Some(PostgresTls::Required) => SslMode::Require,
            None => default_mode(&config),
        });
        if config.get_application_name().is_none() {
            config.application_name("tidegate");
        }
        Ok(Self { config, root_certificates: url.root_certificates().map(Into::into) })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the file of root certificates, if not the system's.
    pub(super) fn root_certificates(&self) -> Option<&PathBuf> {
        self.root_certificates.as_ref()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.config.get_ssl_mode() != SslMode::Disable
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => f.write_str(host)?,
            #[cfg(unix)]
            Some(Host::Unix(path)) => write!(f, "{}", path.display())?,
            None => {}
        }
        write!(f, ":{}", self.config.get_ports().first().unwrap_or(&5432))
    }
}

/// Local traffic cannot be intercepted, and packaged servers use self-signed certificates.
fn default_mode(config: &Config) -> SslMode {
    let is_local = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    let is_local_only = config.get_hosts().iter().all(is_local)
        && config.get_hostaddrs().iter().all(IpAddr::is_loopback);
    if is_local_only { SslMode::Disable } else { SslMode::Prefer }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> SslMode {
        Address::parse(url).unwrap().config.get_ssl_mode()
    }

    #[test]
    fn connections_are_encrypted_except_to_the_local_machine() {
        assert_eq!(mode("postgres://db.example.org/tidegate"), SslMode::Prefer);
        assert_eq!(mode("postgresql://user@127.0.0.1:5433/tidegate"), SslMode::Disable);
        assert_eq!(mode("postgres://localhost/tidegate?sslmode=prefer"), SslMode::Prefer);
        assert_eq!(mode("postgres://localhost,db.example.org/tidegate"), SslMode::Prefer);
        assert_eq!(mode("postgres:///tidegate?host=/run/postgresql"), SslMode::Disable);
        assert_eq!(mode("postgres://h/t?sslmode=verify-full"), SslMode::Require);
        assert_eq!(mode("postgres://h/t?sslmode=disable"), SslMode::Disable);
    }

    #[test]
    fn passwords_may_contain_question_marks() {
        let address = Address::parse("postgres://user:a?b=c@h/t?sslmode=require").unwrap();
        assert_eq!(address.config.get_password(), Some(b"a?b=c".as_slice()));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
    }

    #[test]
    fn root_certificates_can_be_configured() {
        let root_certificates = |url: &str| Address::parse(url).unwrap().root_certificates;
        let url = "postgres://h/t?sslrootcert=/etc/my%20ca.pem&connect_timeout=3";
        assert_eq!(root_certificates(url), Some(PathBuf::from("/etc/my ca.pem")));
        assert_eq!(root_certificates("postgres://h/t?sslrootcert=system"), None);
    }

    #[test]
    fn errors_do_not_repeat_the_url() {
        for url in [
            "mysql://user:s3cret@host/name",
            "host=localhost password=s3cret",
            "postgres://user:s3cret@host/name?sslmode=s3cret",
            "postgres://user:s3cret@host:s3cret/name",
            "postgres://user:s3cret@host/name?sslrootcert=%zz",
            "postgres://user:s3cret@host/name?nonsense",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let address = Address::parse("postgres://user:s3cret@db.example.org/name").unwrap();
        assert_eq!(address.to_string(), "db.example.org:5432");
        assert!(!format!("{address:?}").contains("s3cret"));
    }
}
