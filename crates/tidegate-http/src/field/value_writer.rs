//! Writes the value of a header field: bytes on the stack, copied once into the value.
//!
//! It does not escape: names of limits and units are validated on creation and contain nothing to
//! escape.

use http::HeaderValue;

use crate::small_string::SmallString;

/// Maximum integer of a structured field: 15 digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// A header value under construction. Most fit without allocating.
pub(super) struct ValueWriter(SmallString<128>);

impl ValueWriter {
    pub(super) const fn new() -> Self {
        Self(SmallString::new())
    }

    #[inline]
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.0.push(text);
        self
    }

    /// Writes `text` in quotes. It must not contain anything that needs an escape.
    pub(super) fn quoted(&mut self, text: &str) -> &mut Self {
        self.text("\"").text(text).text("\"")
    }

    /// Writes an integer, capped at the maximum of a structured field.
    #[inline]
    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        let mut digits = itoa::Buffer::new();
        self.text(digits.format(number.min(MAX_INTEGER)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.as_str().is_empty()
    }

    /// Returns the value and clears the writer.
    pub(super) fn take(&mut self) -> Option<HeaderValue> {
        let value = HeaderValue::from_str(self.0.as_str()).ok();
        self.0 = SmallString::new();
        value
    }
}

/// Returns the span in seconds, rounded up.
pub(super) const fn ceil_seconds(span: std::time::Duration) -> u64 {
    span.as_secs().saturating_add(if span.subsec_nanos() > 0 { 1 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_capped_at_fifteen_digits() {
        for (number, written) in [
            (0, "0"),
            (7, "7"),
            (10, "10"),
            (1_234_567, "1234567"),
            (MAX_INTEGER, "999999999999999"),
            (MAX_INTEGER + 1, "999999999999999"),
            (u64::MAX, "999999999999999"),
        ] {
            assert_eq!(ValueWriter::new().number(number).take().unwrap(), written);
        }
    }
}
