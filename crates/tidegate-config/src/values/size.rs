//! Memory sizes: `64MiB`, `512KiB`, `1GiB`, or a number of bytes.
//!
//! Decimal units (`MB`) are rejected, because they are often confused with binary ones.

use std::fmt;
use std::str::FromStr;

/// An invalid memory size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Not an integer with one of the units.
    #[error("must be a size such as 64MiB, 512KiB or 1GiB, or a whole number of bytes")]
    Malformed,
    /// Above 1 TiB, or more than this machine can address.
    #[error("must be at most {MAX_TEXT}, and no more than this machine can address")]
    TooBig,
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(usize);

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Maximum size, as text and in bytes. A larger one is probably a typo and could not be allocated.
const MAX_TEXT: &str = "1TiB";
const MAX_BYTES: u64 = 1 << 40;

impl ByteSize {
    /// Creates a size from a number of bytes.
    #[must_use]
    pub const fn from_bytes(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let (number, unit) = UNITS
            .into_iter()
            .find_map(|(name, bytes)| Some((text.strip_suffix(name)?, bytes)))
            .unwrap_or((text, 1));
        let number = number.trim();
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(SizeError::Malformed);
        }
        let number: u64 = number.parse().map_err(|_| SizeError::TooBig)?;
        let bytes = number.checked_mul(unit).ok_or(SizeError::TooBig)?;
        bytes.try_into()
    }
}

impl TryFrom<u64> for ByteSize {
    type Error = SizeError;

    fn try_from(bytes: u64) -> Result<Self, SizeError> {
        if bytes > MAX_BYTES {
            return Err(SizeError::TooBig);
        }
        usize::try_from(bytes).map(Self).map_err(|_| SizeError::TooBig)
    }
}

impl fmt::Display for ByteSize {
    /// Uses the largest unit that divides the size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as u64;
        for (name, unit) in UNITS {
            if bytes >= unit && bytes.is_multiple_of(unit) {
                return write!(f, "{}{name}", bytes / unit);
            }
        }
        f.write_str("0B")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_use_binary_units() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("512KiB", 512 << 10),
            ("1GiB", 1 << 30),
            ("1TiB", 1 << 40),
            ("1024GiB", 1 << 40),
            ("10 MiB", 10 << 20),
            ("12345", 12_345),
            ("7B", 7),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "MiB", "64MB", "-1MiB", "1.5GiB", "64mib", "0x10"] {
            assert_eq!(text.parse::<ByteSize>(), Err(SizeError::Malformed), "{text:?}");
        }
        for text in [
            "99999999999999999999",
            "99999999999GiB",
            "99999999GiB",
            "1025GiB",
            "2TiB",
            "1099511627777",
        ] {
            assert_eq!(text.parse::<ByteSize>(), Err(SizeError::TooBig), "{text:?}");
        }
        for text in ["64MiB", "1536KiB", "1000B", "2GiB", "1TiB", "0B"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
    }
}
