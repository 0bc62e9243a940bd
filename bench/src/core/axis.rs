//! The axes of the benchmark, and their cases.

pub(super) mod footprint;
pub(super) mod growth;
pub(super) mod keyed;
pub(super) mod new_keys;
pub(super) mod sweep;
pub(super) mod unkeyed;
pub(super) mod zipf;

use clap::ValueEnum;

/// One part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Axis {
    /// One bucket without a key.
    Unkeyed,
    /// One decision on a key at a time.
    Keyed,
    /// Sixteen decisions at a time.
    Batch,
    /// New keys.
    FirstTouch,
    /// Maximum time to insert a new key.
    Pauses,
    /// Bytes per key.
    Memory,
    /// From a thousand keys to a hundred million.
    Growth,
    /// Removing keys that are full again.
    Sweep,
}

/// The keys, threads and expected decision of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Allowed,
    Denied,
    /// Each thread has its own bucket.
    Apart,
    /// All threads share a bucket.
    Shared,
    Thousand,
    /// Each thread has its own keys.
    Halves,
    ThousandDenied,
    Million,
    Zipf,
    Hot,
}

impl Case {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Apart => "allowed, each thread its own",
            Self::Shared => "allowed, one for both",
            Self::Thousand => "1 k keys",
            Self::Halves => "1 k keys, each thread its own half",
            Self::ThousandDenied => "1 k keys, denied",
            Self::Million => "1 M keys",
            Self::Zipf => "1 M keys, Zipf 1.0",
            Self::Hot => "one hot key",
        }
    }

    /// Whether threads mostly write to different memory.
    pub(super) const fn is_spread(self) -> bool {
        matches!(self, Self::Apart | Self::Thousand | Self::Halves | Self::Million | Self::Zipf)
    }
}
