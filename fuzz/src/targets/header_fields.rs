//! Headers: reported limits of providers, hosts and origins of requests, and client addresses
//! behind proxies.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use http::Uri;
use tidegate_core::WallTime;
use tidegate_http::field;
use tidegate_http::host::{AllowedHost, HostCheck, HostPort};
use tidegate_http::identity::{ClientAddress, TrustedProxies};
use tidegate_providers::{Dialect, ReportedLimits};

use crate::input;

const NOW: WallTime = WallTime::from_secs(1_800_000_000);
/// Longer than the maximum of a wait: a leap year and a day.
const LONGEST: Duration = Duration::from_secs(367 * 86_400);

/// Reported limits, `Retry-After`, dates and structured fields, by both parsers.
pub(super) fn reported_limits(bytes: &[u8]) {
    let (headers, _) = input::headers(bytes);
    let reported = field::read(&headers, NOW);
    let spans = reported.limits.iter().flat_map(|limit| [limit.window, limit.reset]);
    for span in spans.chain([reported.retry_after]).flatten() {
        assert!(span <= LONGEST, "a wait of {span:?}");
    }
    assert!(reported.limits.len() <= 64, "{} limits", reported.limits.len());
    for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::Groq] {
        let reported = ReportedLimits::read(dialect, &headers, NOW);
        for (_, reading) in reported.iter() {
            let _ = reading.until_next();
        }
    }
}

/// The client address: for an untrusted peer it is the peer's own, whatever the headers say.
pub(super) fn forwarded(bytes: &[u8]) {
    let (headers, rest) = input::headers(bytes);
    let proxies: TrustedProxies = "10.0.0.0/8, 2001:db8::/32".parse().unwrap();
    let (proxy, untrusted) =
        (IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3)), IpAddr::V4(Ipv4Addr::LOCALHOST));
    for client in [
        ClientAddress::from_x_forwarded_for(),
        ClientAddress::from_forwarded(),
        ClientAddress::from_header("x-real-ip"),
    ] {
        let client = client.trust(proxies.clone());
        assert_eq!(
            client.find(untrusted, &headers),
            untrusted,
            "headers of an untrusted peer are used"
        );
        let found = client.find(proxy, &headers);
        assert_eq!(found, found.to_canonical(), "an address is not canonical");
        assert!(client.network(found).contains(found));
    }
    if let Ok(text) = std::str::from_utf8(rest) {
        let _ = text.parse::<TrustedProxies>();
    }
}

/// `Host` and `Origin` below a request target: an unknown host is never served.
pub(super) fn host(bytes: &[u8]) {
    let Some((target, rest)) = input::text_line(bytes) else { return };
    let Ok(target) = target.parse::<Uri>() else { return };
    let (headers, rest) = input::headers(rest);
    let allowed: AllowedHost = "gate.example.org".parse().unwrap();
    let check = HostCheck::new("10.1.2.3:8080".parse().unwrap(), vec![allowed]);
    if check.check(&target, &headers).is_ok() {
        let host = headers["host"].to_str().unwrap().trim();
        let host = HostPort::parse(host).unwrap();
        let name = host.host().trim_end_matches('.').to_ascii_lowercase();
        let is_served = ["gate.example.org", "10.1.2.3"].contains(&name.as_str());
        assert!(is_served || host.is_loopback(), "{name} is served");
    }
    if let Ok(text) = std::str::from_utf8(rest) {
        let _ = text.parse::<AllowedHost>();
    }
}
