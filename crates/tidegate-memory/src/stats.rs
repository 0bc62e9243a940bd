//! Statistics of a store.

/// Current state of a store, and counters since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys in the table.
    pub keys: usize,
    /// Maximum number of keys in the table.
    pub max_keys: usize,
    /// Keys closed by a hold.
    pub held_keys: usize,
    /// Concurrency leases in use.
    pub leases: usize,
    /// Bytes allocated for keys, holds, leases and shared buckets.
    pub memory_bytes: usize,
    /// Maximum number of bytes allocated.
    pub max_memory_bytes: usize,
    /// Keys inserted into the table, in total.
    pub inserted: u64,
    /// Keys evicted because their bucket was full again, in total.
    pub evicted: u64,
    /// Decisions made on a shared bucket, or denied, because the table was full of keys in debt, in
    /// total.
    pub overflowed: u64,
    /// Settlements that reached the maximum debt of their policy, in total.
    pub saturated: u64,
}
