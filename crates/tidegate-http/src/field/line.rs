//! The value of a field while it is written: bytes on the stack, copied once into the value.
//!
//! It knows digits and plain ASCII text. It does not escape: names of limits and units are
//! restricted where they are made, so that there is nothing to escape.

use http::HeaderValue;

use crate::text::Text;

/// Integers in structured fields have at most 15 digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// A line under construction. Most fit without allocating.
pub(super) struct Line(Text<128>);

impl Line {
    pub(super) const fn new() -> Self {
        Self(Text::new())
    }

    #[inline]
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.0.push(text);
        self
    }

    /// The quoted form of a text in which nothing needs an escape.
    pub(super) fn quoted(&mut self, text: &str) -> &mut Self {
        self.text("\"").text(text).text("\"")
    }

    /// An integer, cut to what a structured field can hold.
    #[inline]
    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        let mut digits = itoa::Buffer::new();
        self.text(digits.format(number.min(MAX_INTEGER)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.as_str().is_empty()
    }

    /// The value, and an empty line again.
    pub(super) fn take(&mut self) -> Option<HeaderValue> {
        let value = HeaderValue::from_str(self.0.as_str()).ok();
        self.0 = Text::new();
        value
    }
}

/// Whole seconds, rounded up as far as there are any.
pub(super) const fn whole_seconds(span: std::time::Duration) -> u64 {
    span.as_secs().saturating_add(if span.subsec_nanos() > 0 { 1 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_whole_and_cut_to_fifteen_digits() {
        for (number, written) in [
            (0, "0"),
            (7, "7"),
            (10, "10"),
            (1_234_567, "1234567"),
            (MAX_INTEGER, "999999999999999"),
            (MAX_INTEGER + 1, "999999999999999"),
            (u64::MAX, "999999999999999"),
        ] {
            assert_eq!(Line::new().number(number).take().unwrap(), written);
        }
    }
}
