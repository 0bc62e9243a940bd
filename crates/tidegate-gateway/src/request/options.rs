//! Options of a request in `x-tidegate-*` headers: maximum wait, tenant, priority, endpoint.
//!
//! A request with an invalid option is refused, because its caller relies on the option.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tidegate::pacer::Priority;
use tidegate_providers::Credential;

/// Prefix of Tidegate's headers, which are not forwarded.
pub(crate) const PREFIX: &str = "x-tidegate-";
const MAX_WAIT: &str = "x-tidegate-max-wait-ms";
const TENANT: &str = "x-tidegate-tenant";
const PRIORITY: &str = "x-tidegate-priority";
pub(crate) const ENDPOINT: &str = "x-tidegate-endpoint";

/// Maximum length of a tenant name. A longer name is replaced by its hash.
const MAX_TENANT_LEN: usize = 64;

/// The options of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestOptions {
    pub(crate) max_wait: Option<Duration>,
    pub(crate) priority: Priority,
    /// The endpoint named by the caller. Whether it exists depends on the provider.
    pub(crate) endpoint: Option<Arc<str>>,
    /// The tenant named by the caller. A user named in the body does not count.
    pub(crate) tenant: Option<Arc<str>>,
}

/// An invalid option and what its value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header {header} must be {expected}")]
pub(crate) struct InvalidOption {
    header: &'static str,
    expected: &'static str,
}

impl RequestOptions {
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, InvalidOption> {
        let max_wait = headers.get(MAX_WAIT).map(|value| {
            let millis = value.to_str().ok().and_then(|text| text.trim().parse().ok());
            let expected = "a whole number of milliseconds";
            millis.map(Duration::from_millis).ok_or(InvalidOption { header: MAX_WAIT, expected })
        });
        let priority = headers.get(PRIORITY).map(|value| match value.to_str().map(str::trim) {
            Ok(name) if name.eq_ignore_ascii_case("high") => Ok(Priority::High),
            Ok(name) if name.eq_ignore_ascii_case("normal") => Ok(Priority::Normal),
            Ok(name) if name.eq_ignore_ascii_case("low") => Ok(Priority::Low),
            _ => Err(InvalidOption { header: PRIORITY, expected: "`high`, `normal` or `low`" }),
        });
        let tenant = headers.get(TENANT).map(|value| match value.to_str().map(str::trim) {
            Ok(name) if !name.is_empty() => Ok(bounded_tenant(name)),
            _ => Err(InvalidOption {
                header: TENANT,
                expected: "a name of visible ASCII characters",
            }),
        });
        let endpoint = headers.get(ENDPOINT).map(|value| match value.to_str().map(str::trim) {
            Ok(name) if !name.is_empty() => Ok(name.into()),
            _ => {
                Err(InvalidOption { header: ENDPOINT, expected: "the name of a declared endpoint" })
            }
        });
        Ok(Self {
            endpoint: endpoint.transpose()?,
            max_wait: max_wait.transpose()?,
            priority: priority.transpose()?.unwrap_or_default(),
            tenant: tenant.transpose()?,
        })
    }
}

fn bounded_tenant(name: &str) -> Arc<str> {
    if name.len() <= MAX_TENANT_LEN {
        return name.into();
    }
    Credential::new(name).id().into()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const LONG_NAME: &str = "a-name-of-a-tenant-that-is-longer-than-any-name-of-a-tenant-has-to-be";

    fn read(headers: &[(&'static str, &'static str)]) -> Result<RequestOptions, InvalidOption> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        RequestOptions::read(&headers.collect())
    }

    #[test]
    fn options_are_parsed() {
        let options = read(&[(MAX_WAIT, "1500"), (PRIORITY, "Low"), (TENANT, " team-a ")]).unwrap();
        assert_eq!(options.max_wait, Some(Duration::from_millis(1_500)));
        assert_eq!(options.priority, Priority::Low);
        assert_eq!(options.tenant.as_deref(), Some("team-a"));
    }

    #[test]
    fn a_long_tenant_is_replaced_by_its_hash() {
        let long = read(&[(TENANT, LONG_NAME)]).unwrap();
        assert_eq!(long.tenant.map(|tenant| tenant.len()), Some(16));
    }

    #[test]
    fn invalid_options_are_reported() {
        for (name, value) in [(MAX_WAIT, "soon"), (MAX_WAIT, "-1"), (PRIORITY, "1"), (TENANT, "")] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
