//! Figures about a store, for people and metrics.

/// How a store stands, and what happened in it since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys in the table now.
    pub keys: usize,
    /// Keys that the table can hold.
    pub max_keys: usize,
    /// Keys that are held closed now.
    pub held_keys: usize,
    /// Concurrency leases out now.
    pub leases: usize,
    /// Bytes allocated for keys, holds, leases and shared buckets now.
    pub memory_bytes: usize,
    /// Bytes that may be allocated at most.
    pub max_memory_bytes: usize,
    /// Keys that were put into the table.
    pub inserted: u64,
    /// Keys that were taken out because their bucket was full again.
    pub evicted: u64,
    /// Decisions on a shared bucket, or denied, because the table was full of indebted keys.
    pub overflowed: u64,
    /// Settlements that hit the deepest debt of their policy.
    pub saturated: u64,
}
