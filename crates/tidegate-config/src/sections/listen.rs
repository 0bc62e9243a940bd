//! `[listen]`: listener addresses, and the hosts and proxies to accept.

use std::net::{Ipv4Addr, SocketAddr};

use tidegate_http::host::AllowedHost;
use tidegate_http::identity::TrustedProxies;

use crate::sections::keys::KnownKey;
use crate::values::fields::Fields;
use crate::values::setting::Setting;
use crate::values::value::Value;
use crate::values::value_kind::ValueKind;
use crate::violation::Rule;

const WHY_FIXED: &str = "listeners cannot change while the program runs";

pub(crate) const KEYS: &[KnownKey] = &[
    listener(
        "listen.http",
        "Address of the HTTP API, for rate limit decisions and calls to LLM providers.",
    )
    .at_start(WHY_FIXED, |a, b| a.listen.http.value != b.listen.http.value),
    listener("listen.admin", "Address of the admin API, with metrics and settings.")
        .at_start(WHY_FIXED, |a, b| a.listen.admin.value != b.listen.admin.value),
    listener("listen.grpc", "Address of the gRPC API.")
        .at_start(WHY_FIXED, |a, b| a.listen.grpc.value != b.listen.grpc.value),
    listener("listen.resp", "Address of the RESP listener.")
        .fixed(WHY_FIXED)
        .unused("there is no RESP listener"),
    KnownKey::new(
        "listen.allowed_hosts",
        ValueKind::Texts,
        |value| hosts(value).map(drop),
        "Values of the Host header to accept besides loopback and the listener's own address.",
    )
    .at_start(WHY_FIXED, |a, b| a.listen.allowed_hosts.value != b.listen.allowed_hosts.value),
    KnownKey::new(
        "listen.trusted_proxies",
        ValueKind::Texts,
        |value| proxies(value).map(drop),
        "Addresses and networks of proxies that are trusted to name a client, a tenant or a \
         priority, and that are exempt from the limit of connections per address.",
    )
    .at_start(WHY_FIXED, |a, b| a.listen.trusted_proxies.value != b.listen.trusted_proxies.value),
];

const fn listener(path: &'static str, description: &'static str) -> KnownKey {
    KnownKey::new(path, ValueKind::Text, |value| address(value).map(drop), description)
}

/// Settings of `[listen]`. All listeners default to loopback.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listen {
    /// Address of the HTTP API. Default: `127.0.0.1:8080`.
    pub http: Setting<SocketAddr>,
    /// Address of the admin API. Default: `127.0.0.1:6070`.
    pub admin: Setting<SocketAddr>,
    /// Address of the gRPC API. Default: `127.0.0.1:8081`.
    pub grpc: Setting<SocketAddr>,
    /// Address of the RESP listener, which does not exist yet. Default: `127.0.0.1:6380`.
    pub resp: Setting<SocketAddr>,
    /// Values of the Host header to accept besides loopback and the listener's own address.
    /// Default: none.
    pub allowed_hosts: Setting<Vec<AllowedHost>>,
    /// Proxies whose client, tenant and priority headers are trusted. Default: none.
    pub trusted_proxies: Setting<TrustedProxies>,
}

impl Default for Listen {
    fn default() -> Self {
        let loopback = |port| Setting::default(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Self {
            http: loopback(8080),
            admin: loopback(6070),
            grpc: loopback(8081),
            resp: loopback(6380),
            allowed_hosts: Setting::default(Vec::new()),
            trusted_proxies: Setting::default(TrustedProxies::NONE),
        }
    }
}

impl Listen {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut listen = Self::default();
        listen.http.replace(fields.setting("http", address));
        listen.admin.replace(fields.setting("admin", address));
        listen.grpc.replace(fields.setting("grpc", address));
        listen.resp.replace(fields.setting("resp", address));
        listen.allowed_hosts.replace(fields.setting("allowed_hosts", hosts));
        listen.trusted_proxies.replace(fields.setting("trusted_proxies", proxies));
        listen
    }
}

fn address(value: &Value<'_>) -> Result<SocketAddr, Rule> {
    let text = value.to_text().map_err(|_| Rule::Address)?;
    if let Some(port) = text.strip_prefix("localhost:") {
        let port = port.parse().map_err(|_| Rule::Address)?;
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| Rule::Address)
}

fn hosts(value: &Value<'_>) -> Result<Vec<AllowedHost>, Rule> {
    let host = |text: &str| text.parse().map_err(|_| Rule::Host);
    value.to_texts()?.into_iter().map(host).collect()
}

fn proxies(value: &Value<'_>) -> Result<TrustedProxies, Rule> {
    value.to_texts()?.join(",").parse().map_err(|_| Rule::Network)
}
