//! Identifies callers: by network and credential, or by what a trusted proxy says.
//!
//! Callers can claim any tenant and any priority. Scheduling between callers therefore uses what
//! they cannot choose: first the network of their address, then their credential. A tenant
//! subdivides the share of its caller, and a priority orders it. Trusted proxies are believed:
//! their tenants take the place of addresses, and their priorities count among all callers.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;

use arrayvec::ArrayString;
use http::HeaderMap;
use tidegate::pacer::CallerId;
use tidegate_http::identity::{ClientAddress, IPV6_CLIENT_BITS, TrustedProxies, client_network};
use tidegate_providers::Credential;

/// Maximum length of an address as text.
const MAX_ADDRESS_LEN: usize = 45;

/// Marks IPv4 addresses. No IPv6 network in use has only this bit set above the low 32 bits.
const IPV4_TAG: u64 = 1 << 32;

/// Finds the peer of a request.
#[derive(Debug, Default)]
pub(crate) struct PeerResolver(ClientAddress);

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The remote address, or the client that a trusted proxy names.
    pub(crate) address: IpAddr,
    /// Whether it comes from a trusted proxy, whose tenants and priorities are believed.
    pub(crate) is_trusted: bool,
}

impl PeerResolver {
    pub(crate) fn new(proxies: TrustedProxies) -> Self {
        Self(ClientAddress::from_either().trust(proxies))
    }

    pub(crate) fn resolve(&self, address: IpAddr, headers: &HeaderMap) -> Peer {
        if self.0.trusts(address) {
            Peer { address: self.0.find(address, headers), is_trusted: true }
        } else {
            Peer { address, is_trusted: false }
        }
    }
}

/// The caller of a call, for scheduling and display.
#[derive(Clone, Debug)]
pub(crate) struct CallerIdentity {
    pub(crate) peer: Peer,
    pub(crate) credential: Credential,
    /// The tenant named by the caller.
    pub(crate) tenant: Option<Arc<str>>,
}

impl CallerIdentity {
    /// Returns the identity used for scheduling.
    pub(crate) fn pacer_caller(&self) -> CallerId {
        let peer = match &self.tenant {
            Some(tenant) if self.peer.is_trusted => hash(tenant),
            _ => network_number(self.peer.address),
        };
        let caller = CallerId::new(peer).credential(credential_number(&self.credential));
        if self.peer.is_trusted { caller.trusted() } else { caller }
    }

    /// Returns the display name: the tenant if there is one, otherwise the address and the key's
    /// hash.
    pub(crate) fn label(&self) -> Arc<str> {
        let address = || {
            let mut text = ArrayString::<MAX_ADDRESS_LEN>::new();
            // Every address fits.
            let _ = write!(text, "{}", client_network(self.peer.address, IPV6_CLIENT_BITS).addr());
            text
        };
        match (&self.tenant, self.credential.reveal()) {
            (Some(tenant), _) => tenant.clone(),
            (None, Some(_)) => [&address(), " ", self.credential.id()].concat().into(),
            (None, None) => address().as_str().into(),
        }
    }
}

/// Returns the network of an address as a number.
fn network_number(address: IpAddr) -> u64 {
    match client_network(address, IPV6_CLIENT_BITS).addr() {
        IpAddr::V4(address) => IPV4_TAG | u64::from(u32::from(address)),
        // The lower half is zero.
        IpAddr::V6(address) => (u128::from(address) >> 64) as u64,
    }
}

/// Returns a credential as a number; zero for none.
fn credential_number(credential: &Credential) -> u64 {
    if credential.reveal().is_none() {
        return 0;
    }
    let id = credential.id();
    u64::from_str_radix(id, 16).unwrap_or_else(|_| hash(id))
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn name(peer: &str, key: Option<&str>, tenant: Option<&str>) -> CallerIdentity {
        let peer = Peer { address: peer.parse().unwrap(), is_trusted: false };
        let credential = key.map_or_else(Credential::none, Credential::new);
        CallerIdentity { peer, credential, tenant: tenant.map(Into::into) }
    }

    #[test]
    fn label_is_the_tenant_or_address_and_key() {
        assert_eq!(&*name("127.0.0.1", Some("sk-1"), Some("team-a")).label(), "team-a");
        assert_eq!(&*name("127.0.0.1", None, None).label(), "127.0.0.1");
        for (peer, expected) in [
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::9", "2001:db8:1:2::"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(&*name(peer, None, None).label(), expected);
        }
        let labels = ["sk-1", "sk-2"].map(|key| name("127.0.0.1", Some(key), None).label());
        assert_ne!(labels[0], labels[1]);
        assert!(labels.iter().all(|label| !label.contains("sk-")), "{labels:?}");
    }

    #[test]
    fn untrusted_callers_are_identified_by_network_and_key() {
        let caller = |peer, key, tenant| name(peer, key, tenant).pacer_caller();
        let one = caller("127.0.0.1", Some("sk-1"), None);
        assert_eq!(caller("127.0.0.1", Some("sk-1"), Some("x")), one);
        assert_eq!(caller("::ffff:127.0.0.1", Some("sk-1"), Some("y")), one);
        assert_ne!(caller("127.0.0.2", Some("sk-1"), None), one);
        assert_ne!(caller("127.0.0.1", Some("sk-2"), None), one);
        assert_ne!(caller("127.0.0.1", None, None), one);
        let ipv6 = caller("2001:db8:1:2::9", None, None);
        assert_eq!(caller("2001:db8:1:2:3:4:5:6", None, None), ipv6);
        assert_ne!(caller("2001:db8:1:3::9", None, None), ipv6);
    }

    #[test]
    fn trusted_proxies_name_tenants_and_clients() {
        let resolver = PeerResolver::new("10.0.0.1".parse().unwrap());
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            pairs.iter().map(pair).collect()
        };
        let resolve =
            |peer: &str, pairs: &[_]| resolver.resolve(peer.parse().unwrap(), &headers(pairs));
        let list = ("x-forwarded-for", "192.0.2.1, 192.0.2.2");
        let proxied = resolve("10.0.0.1", &[list]);
        assert_eq!((proxied.address.to_string().as_str(), proxied.is_trusted), ("192.0.2.2", true));
        let untrusted = resolve("10.0.0.2", &[list]);
        assert_eq!(
            (untrusted.address.to_string().as_str(), untrusted.is_trusted),
            ("10.0.0.2", false)
        );
        let both = resolve("10.0.0.1", &[list, ("forwarded", "for=192.0.2.9")]);
        assert_eq!(both.address.to_string(), "10.0.0.1", "conflicting headers are ignored");

        let of = |peer: Peer, tenant: &str| CallerIdentity {
            peer,
            credential: Credential::none(),
            tenant: Some(tenant.into()),
        };
        assert_ne!(of(proxied, "a").pacer_caller(), of(proxied, "b").pacer_caller());
        assert_eq!(of(proxied, "a").pacer_caller(), of(both, "a").pacer_caller());
        assert_eq!(of(untrusted, "a").pacer_caller(), of(untrusted, "b").pacer_caller());
    }
}
