//! Which shard has a key.

use tidegate_core::Key;

/// Default number of shards.
pub const DEFAULT_SHARDS: u32 = 128;

/// Maximum number of shards. Each is an object with its own storage.
pub const MAX_SHARDS: u32 = 65_536;

/// Returns the 32-bit FNV-1a hash of the UTF-8 bytes of `text`.
///
/// ```
/// assert_eq!(tidegate_shard::route::fnv1a("user:1"), 1_830_439_627);
/// ```
#[must_use]
pub fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(2_166_136_261, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}

/// Returns the shard of a key: that of its group, or of its name if it has none. Keys of a group
/// are decided together.
///
/// ```
/// use tidegate_core::Key;
/// use tidegate_shard::route::shard_of;
/// assert_eq!(shard_of(Key::new("user:1"), 128), 75);
/// assert_eq!(shard_of(Key::new("user:2"), 128), 94);
/// assert_eq!(shard_of(Key::new("rl:public:anon:PING"), 128), 60);
/// assert_eq!(shard_of(Key::new("any").in_group("user:1"), 128), 75);
/// ```
///
/// # Panics
/// If `shards` is zero.
#[must_use]
pub fn shard_of(key: Key<'_>, shards: u32) -> u32 {
    fnv1a(key.group().unwrap_or(key.name())) % shards
}
