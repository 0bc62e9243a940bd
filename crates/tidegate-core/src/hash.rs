//! Numbers that stand for texts, and numbers that are spread. None of them is a secret.

/// A text in 64 bits (FNV-1a): the same in every process and every version.
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

/// A bijection of 64 bits in which every input bit reaches every output bit. Different numbers stay
/// different, and the numbers of a counter look random.
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
