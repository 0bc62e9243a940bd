//! What addresses of servers have in common beside hosts: numbers and escapes.

use std::str::FromStr;

/// A number of digits only: parsing alone would allow a sign.
pub(crate) fn number<N: FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// The bytes that a text with escapes stands for.
pub(crate) fn percent_decode(text: &str) -> Option<Vec<u8>> {
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
