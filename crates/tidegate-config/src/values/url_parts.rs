//! Helpers for URLs: numbers and percent-decoding.

use std::str::FromStr;

/// Parses a number that consists of digits only; `parse` alone would accept a sign.
pub(crate) fn number<N: FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// Percent-decodes text; `None` if an escape is malformed.
pub(crate) fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        // `from_str_radix` alone would accept a sign.
        let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        bytes.push(hex.then(|| u8::from_str_radix(digits, 16).ok())??);
        bytes.extend(rest.bytes());
    }
    Some(bytes)
}
