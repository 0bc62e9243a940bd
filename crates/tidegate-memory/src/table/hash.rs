//! Hash of a limit and a key, which identifies a bucket in the table.
//!
//! It is seeded with a secret of the store, so that callers cannot choose keys that collide.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};
use tidegate_core::hash::mix;
use tidegate_core::{Key, Limit};

/// Distinguishes a group from a key with the same bytes.
const GROUP: u64 = 0x6a09_e667_f3bc_c908;

/// A seeded hash function.
#[derive(Clone)]
pub(crate) struct Hasher {
    seed: u64,
    secrets: RapidSecrets,
    /// Named and inline limits use different salts. Otherwise a caller could choose an inline
    /// policy whose digest equals that of a name.
    named: u64,
    inline: u64,
}

impl Hasher {
    pub(crate) fn new(seed: u64) -> Self {
        let named = mix(seed);
        Self { seed, secrets: RapidSecrets::seed(seed), named, inline: mix(named) }
    }

    /// Returns the seed.
    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the hash of a bucket.
    #[inline]
    pub(crate) fn bucket(&self, limit: &Limit, key: Key<'_>) -> u64 {
        let salt = if limit.is_inline() { self.inline } else { self.named };
        let hash = self.hash_text(key.name()) ^ mix(limit.digest() ^ salt);
        match key.group() {
            Some(group) => hash ^ mix(self.hash_text(group) ^ GROUP),
            None => hash,
        }
    }

    #[inline]
    fn hash_text(&self, text: &str) -> u64 {
        // This variant is the fastest for short texts such as keys.
        rapidhash_v3_nano_inline::<true, false>(text.as_bytes(), &self.secrets)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::Policy;

    use super::*;

    #[test]
    fn hash_depends_on_limit_key_group_and_seed() {
        let policy = Policy::per_second(1).build().unwrap();
        let (a, b) = (Limit::named("a", policy).unwrap(), Limit::named("b", policy).unwrap());
        let hasher = Hasher::new(7);
        let hash = hasher.bucket(&a, Key::new("x"));
        assert_eq!(hash, hasher.bucket(&a, Key::new("x")));
        assert_ne!(hash, hasher.bucket(&b, Key::new("x")));
        assert_ne!(hash, hasher.bucket(&a, Key::new("y")));
        assert_ne!(hash, hasher.bucket(&a, Key::new("x").in_group("x")));
        assert_ne!(hash, Hasher::new(8).bucket(&a, Key::new("x")));
        let inline = Limit::inline(policy);
        assert_ne!(hash, hasher.bucket(&inline, Key::new("x")));
        let swapped = hasher.bucket(&a, Key::new("x").in_group("y"));
        assert_ne!(swapped, hasher.bucket(&a, Key::new("y").in_group("x")));
    }
}
