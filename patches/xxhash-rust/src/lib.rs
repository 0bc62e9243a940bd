//! The one function that the `redis` crate uses of `xxhash-rust`, whose licence (BSL-1.0) is not
//! among those that our dependencies may have. The hash itself comes from `twox-hash` (MIT).

/// XXH3 with 64 bits.
pub mod xxh3 {
    /// The hash of `input`, without a seed.
    pub fn xxh3_64(input: &[u8]) -> u64 {
        twox_hash::XxHash3_64::oneshot(input)
    }
}
