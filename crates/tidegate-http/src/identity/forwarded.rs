//! Hops from forwarding headers, nearest first; `None` for an entry that is not an address.
//!
//! Lines and entries are read from the right. Anything a client sent is to the left of what proxies
//! appended, so malformed input cannot affect their entries.

use std::net::IpAddr;

use http::header::{HeaderMap, HeaderName};

/// Returns the hops of `X-Forwarded-For`.
pub(super) fn x_forwarded_for(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    let hops = lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','));
    hops.map(|hop| parse_node(std::str::from_utf8(hop.trim_ascii()).ok()?))
}

/// Returns the hops of `Forwarded`.
pub(super) fn forwarded(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all("forwarded").iter().rev();
    let entries = lines.flat_map(|line| ReverseEntries(Some(line.as_bytes())));
    entries.map(|entry| parse_element(std::str::from_utf8(entry).ok()?))
}

/// Returns the address in a header that occurs once and holds nothing else.
pub(super) fn single(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() { None } else { parse_node(value.trim()) }
}

/// Iterator over comma-separated entries, last first, ignoring commas inside quotes.
///
/// An entry is the shortest text on the right with balanced quotes, so a quote left open by a
/// client does not extend into what a proxy appended.
struct ReverseEntries<'a>(Option<&'a [u8]>);

impl<'a> Iterator for ReverseEntries<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0.take()?;
        let mut balanced = true;
        for (index, byte) in rest.iter().enumerate().rev() {
            let escaped = index > 0 && rest[index - 1] == b'\\';
            match byte {
                b'"' if !escaped => balanced = !balanced,
                b',' if balanced => {
                    self.0 = Some(&rest[..index]);
                    return Some(&rest[index + 1..]);
                }
                _ => {}
            }
        }
        Some(rest)
    }
}

/// Parses the `for` of an entry such as `for="[2001:db8::1]:4711";proto=https`.
fn parse_element(entry: &str) -> Option<IpAddr> {
    let mut found = None;
    for pair in pairs(entry) {
        let (name, value) = pair.split_once('=')?;
        if !name.trim_matches([' ', '\t']).eq_ignore_ascii_case("for") {
            continue;
        }
        if found.is_some() {
            return None;
        }
        found = Some(value.trim_matches([' ', '\t']));
    }
    let value = found?;
    let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match quoted {
        // Escapes are legal but pointless: an address has nothing to escape.
        Some(text) if text.contains('\\') => parse_node(&text.replace('\\', "")),
        Some(text) => parse_node(text),
        None => parse_node(value),
    }
}

/// Splits at semicolons outside quotes.
fn pairs(entry: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    entry.split(move |c| {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = quoted,
            '"' => quoted = !quoted,
            _ => {}
        }
        c == ';' && !quoted
    })
}

/// Parses an address, with or without a port; IPv6 with a port is in brackets. `unknown` and
/// obfuscated names such as `_hidden` are not addresses.
fn parse_node(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let (address, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (IpAddr::V6(address.parse().ok()?), port)
        }
        None => {
            let end = text.find(':')?;
            (IpAddr::V4(text[..end].parse().ok()?), &text[end..])
        }
    };
    let Some(port) = port.strip_prefix(':') else {
        return port.is_empty().then(|| address.to_canonical());
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let obfuscated = port.strip_prefix('_').is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    });
    let valid = obfuscated || ((1..=5).contains(&port.len()) && digits(port));
    valid.then(|| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_parse_with_and_without_ports() {
        for (text, address) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("[2001:db8::1]:_port", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
        ] {
            assert_eq!(parse_node(text), Some(address.parse().unwrap()), "{text}");
        }
        for text in [
            "",
            "unknown",
            "_hidden",
            "localhost",
            "192.0.2.256",
            "192.0.2.1:",
            "192.0.2.1:123456",
            "192.0.2.1:x",
            "[192.0.2.1]",
            "[2001:db8::1",
            "[2001:db8::1]x",
            "fe80::1%eth0",
            "192.0.2.1 ",
            "192.0.2.1:_",
            "010.0.0.1",
        ] {
            assert_eq!(parse_node(text), None, "{text}");
        }
    }

    #[test]
    fn entries_are_split_from_the_right_outside_quotes() {
        let split = |text: &'static str| {
            let entries = ReverseEntries(Some(text.as_bytes()));
            entries.map(|entry| std::str::from_utf8(entry).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(split("a, b"), [" b", "a"]);
        assert_eq!(split(r#"a;x="1,2", b"#), [" b", r#"a;x="1,2""#]);
        assert_eq!(split(r#"a;x="1\",2", b"#), [" b", r#"a;x="1\",2""#]);
        assert_eq!(split(r#"a;x=", b;y="1""#), [r#" b;y="1""#, r#"a;x=""#]);
        assert_eq!(split(""), [""]);
    }

    #[test]
    fn element_has_exactly_one_for() {
        let read = |text| parse_element(text).map(|address| address.to_string());
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read("for=192.0.2.1"), some("192.0.2.1"));
        assert_eq!(read(" proto=https; FOR=\"192.0.2.1:80\" ;by=_a"), some("192.0.2.1"));
        assert_eq!(read(r#"for="[2001:db8::1]:4711""#), some("2001:db8::1"));
        assert_eq!(read(r#"host="a;for=6.6.6.6";for=192.0.2.1"#), some("192.0.2.1"));
        for text in ["", "for=unknown", "for=_a", "by=192.0.2.1", "for=1.1.1.1;for=2.2.2.2", "x"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
