//! Non-cryptographic hashing. None of these functions is keyed.

/// Returns the 64-bit FNV-1a hash of `text`. It is stable across processes and versions.
///
/// ```
/// use tidegate_core::hash::digest;
/// assert_eq!(digest(""), 0xcbf2_9ce4_8422_2325);
/// assert_eq!(digest("a"), 0xaf63_dc4c_8601_ec8c);
/// ```
#[must_use]
pub fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Mixes 64 bits: a bijection in which every input bit affects every output bit. Distinct inputs
/// stay distinct, and consecutive numbers look random.
///
/// ```
/// use tidegate_core::hash::mix;
/// assert_eq!(mix(0), 0);
/// assert!((mix(1) ^ mix(2)).count_ones() > 16);
/// ```
#[must_use]
#[inline]
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}
