//! The parts that addresses of servers have in common: hosts, ports, escapes.

use std::net::Ipv6Addr;
use std::str::FromStr;

/// Why a host with a port is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadServer {
    Host,
    Port,
}

/// A host, and the port if one is given.
pub(crate) fn host_and_port(server: &str) -> Result<(&str, Option<u16>), BadServer> {
    // The colons of an address in brackets are its own.
    let end = server.find(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match server[end..].rfind(':') {
        Some(colon) => (&server[..end + colon], Some(&server[end + colon + 1..])),
        None => (server, None),
    };
    if !is_host(host) {
        return Err(BadServer::Host);
    }
    let port = match port {
        None => None,
        Some(port) => Some(number(port).filter(|port| *port > 0).ok_or(BadServer::Port)?),
    };
    Ok((host, port))
}

fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !host.is_empty() && host.bytes().all(may_be)
        }
    }
}

/// A number of digits only: parsing alone would allow a sign.
pub(crate) fn number<N: FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// The bytes that a text with escapes stands for.
pub(crate) fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        // Parsing alone would allow a sign.
        let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        bytes.push(hex.then(|| u8::from_str_radix(digits, 16).ok())??);
        bytes.extend(rest.bytes());
    }
    Some(bytes)
}
