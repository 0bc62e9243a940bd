//! What a caller wishes, in header fields of ours: how long it waits, as whom, how urgently.
//!
//! A wish that cannot be read is refused, since whoever made it counts on it.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tidegate::pacer::Priority;
use tidegate_providers::Credential;

/// What all of our names begin with. None of them is passed on.
pub(crate) const PREFIX: &str = "x-tidegate-";
const MAX_WAIT: &str = "x-tidegate-max-wait-ms";
const TENANT: &str = "x-tidegate-tenant";
const PRIORITY: &str = "x-tidegate-priority";

/// No tenant has a longer name; it is the hash of it then.
const LONGEST_TENANT: usize = 64;

/// What was wished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) max_wait: Option<Duration>,
    pub(crate) priority: Priority,
    tenant: Option<Arc<str>>,
}

/// A field that cannot be read, and what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header field {field} must be {rule}")]
pub(crate) struct Unread {
    field: &'static str,
    rule: &'static str,
}

impl Wishes {
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, Unread> {
        let max_wait = headers.get(MAX_WAIT).map(|value| {
            let millis = value.to_str().ok().and_then(|text| text.trim().parse().ok());
            let rule = "a whole number of milliseconds";
            millis.map(Duration::from_millis).ok_or(Unread { field: MAX_WAIT, rule })
        });
        let priority = headers.get(PRIORITY).map(|value| match value.to_str().map(str::trim) {
            Ok(name) if name.eq_ignore_ascii_case("high") => Ok(Priority::High),
            Ok(name) if name.eq_ignore_ascii_case("normal") => Ok(Priority::Normal),
            Ok(name) if name.eq_ignore_ascii_case("low") => Ok(Priority::Low),
            _ => Err(Unread { field: PRIORITY, rule: "`high`, `normal` or `low`" }),
        });
        let tenant = headers.get(TENANT).map(|value| match value.to_str().map(str::trim) {
            Ok(name) if !name.is_empty() => Ok(bounded(name)),
            _ => Err(Unread { field: TENANT, rule: "a name of visible ASCII characters" }),
        });
        Ok(Self {
            max_wait: max_wait.transpose()?,
            priority: priority.transpose()?.unwrap_or_default(),
            tenant: tenant.transpose()?,
        })
    }

    /// Whose call it is: as the caller says, else the user in the body, else where it comes from.
    pub(crate) fn tenant(&self, user: Option<&str>, peer: IpAddr) -> Arc<str> {
        match (&self.tenant, user) {
            (Some(tenant), _) => tenant.clone(),
            (None, Some(user)) => bounded(user),
            (None, None) => place(peer).to_string().into(),
        }
    }
}

/// Where a peer comes from. Whoever has an IPv6 address has the 2^64 beside it too.
fn place(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn bounded(name: &str) -> Arc<str> {
    if name.len() <= LONGEST_TENANT {
        return name.into();
    }
    Credential::new(name).id().into()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn read(fields: &[(&'static str, &'static str)]) -> Result<Wishes, Unread> {
        let fields = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        Wishes::read(&fields.collect())
    }

    #[test]
    fn wishes_are_read() {
        let wishes = read(&[(MAX_WAIT, "1500"), (PRIORITY, "Low"), (TENANT, " team-a ")]).unwrap();
        assert_eq!(wishes.max_wait, Some(Duration::from_millis(1_500)));
        assert_eq!(wishes.priority, Priority::Low);
        assert_eq!(&*wishes.tenant(Some("somebody"), PEER), "team-a");
    }

    #[test]
    fn a_tenant_is_the_user_else_the_peer_and_never_long() {
        let nobody = Wishes::default();
        assert_eq!(&*nobody.tenant(Some("somebody"), PEER), "somebody");
        assert_eq!(&*nobody.tenant(None, PEER), "127.0.0.1");
        for (peer, place) in [
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::9", "2001:db8:1:2::"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(&*nobody.tenant(None, peer.parse().unwrap()), place);
        }
        let long = "x".repeat(1_000);
        assert_eq!(nobody.tenant(Some(&long), PEER).len(), 16);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for (name, value) in [(MAX_WAIT, "soon"), (MAX_WAIT, "-1"), (PRIORITY, "1"), (TENANT, "")] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
