//! The hash that stands for a limit and a key in the table.
//!
//! It is seeded with a secret of the store: whoever chooses keys cannot choose collisions. Two
//! keys collide with probability 2^-64 per pair and then share a bucket.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};
use tidegate_core::{Key, Limit};

/// Separates a group from a key that happens to have the same bytes.
const GROUP: u64 = 0x6a09_e667_f3bc_c908;

/// A seeded hash function.
#[derive(Clone, Debug)]
pub(crate) struct Hasher {
    secrets: RapidSecrets,
    salt: u64,
}

impl Hasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self { secrets: RapidSecrets::seed(seed), salt: mix(seed) }
    }

    /// The hash of a bucket; never zero, which marks a vacant slot.
    #[inline]
    pub(crate) fn bucket(&self, limit: &Limit, key: Key<'_>) -> u64 {
        let mut hash = self.text(key.name());
        if let Some(group) = key.group() {
            hash ^= mix(self.text(group) ^ GROUP);
        }
        // For a given limit this is a bijection of the key's hash. The identity is hashed with the
        // secret as well: callers may choose inline policies.
        mix(hash ^ mix(self.text(limit.identity()) ^ self.salt)).max(1)
    }

    #[inline]
    fn text(&self, text: &str) -> u64 {
        rapidhash_v3_inline::<true, false, true>(text.as_bytes(), &self.secrets)
    }
}

/// A bijection of 64 bits in which every input bit reaches every output bit.
#[inline]
const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use tidegate_core::Policy;

    use super::*;

    #[test]
    fn limit_key_group_and_seed_all_count() {
        let policy = Policy::per_second(1).build().unwrap();
        let (a, b) = (Limit::named("a", policy).unwrap(), Limit::named("b", policy).unwrap());
        let hasher = Hasher::new(7);
        let hash = hasher.bucket(&a, Key::new("x"));
        assert_eq!(hash, hasher.bucket(&a, Key::new("x")));
        assert_ne!(hash, hasher.bucket(&b, Key::new("x")));
        assert_ne!(hash, hasher.bucket(&a, Key::new("y")));
        assert_ne!(hash, hasher.bucket(&a, Key::new("x").in_group("x")));
        assert_ne!(hash, Hasher::new(8).bucket(&a, Key::new("x")));
        let swapped = hasher.bucket(&a, Key::new("x").in_group("y"));
        assert_ne!(swapped, hasher.bucket(&a, Key::new("y").in_group("x")));
    }
}
