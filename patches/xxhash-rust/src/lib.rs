//! Replaces `xxhash-rust`, whose licence (BSL-1.0) is not among the allowed ones, with the only
//! function that the `redis` crate uses. The hash comes from `twox-hash` (MIT).

/// XXH3 with 64 bits.
pub mod xxh3 {
    /// Returns the hash of `input`, without a seed.
    pub fn xxh3_64(input: &[u8]) -> u64 {
        twox_hash::XxHash3_64::oneshot(input)
    }
}
