//! The x86-64 time stamp counter: reading it, and checking that the processor guarantees a constant
//! rate.
//!
//! Other architectures are not supported. On 64-bit ARM, the operating system's clock already reads
//! such a counter and costs little more.

#![allow(unsafe_code, reason = "older compilers have no safe intrinsics for these instructions")]

pub(super) use machine::{is_invariant, now, now_ordered};

#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
mod machine {
    #![allow(unused_unsafe, reason = "some of these intrinsics are safe in newer compilers")]

    use std::arch::x86_64::{__cpuid, _mm_lfence, _rdtsc};

    /// CPUID leaf for power management. A bit in EDX guarantees that the counter runs at a constant
    /// rate in all power states.
    const POWER_MANAGEMENT_LEAF: u32 = 0x8000_0007;
    const INVARIANT_BIT: u32 = 1 << 8;
    /// CPUID leaf that returns the highest supported extended leaf.
    const MAX_LEAF: u32 = 0x8000_0000;

    pub(in super::super) fn is_invariant() -> bool {
        // SAFETY: every x86-64 processor has CPUID, and the leaf is only queried if it exists.
        unsafe {
            __cpuid(MAX_LEAF).eax >= POWER_MANAGEMENT_LEAF
                && __cpuid(POWER_MANAGEMENT_LEAF).edx & INVARIANT_BIT != 0
        }
    }

    /// Reads the counter. The processor may do so before preceding instructions have completed.
    #[inline]
    pub(in super::super) fn now() -> u64 {
        // SAFETY: every x86-64 processor has RDTSC, and it accesses no memory. A system that
        // forbids it to programs does not use the counter for its own clock, and then neither do
        // we.
        unsafe { _rdtsc() }
    }

    /// Reads the counter after all preceding instructions have completed.
    #[inline]
    pub(in super::super) fn now_ordered() -> u64 {
        // SAFETY: LFENCE is part of SSE2, which every x86-64 processor has. It accesses no memory.
        unsafe { _mm_lfence() };
        now()
    }
}

#[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
mod machine {
    pub(in super::super) const fn is_invariant() -> bool {
        false
    }

    /// Never called, since a `CounterClock` requires an invariant counter.
    #[inline]
    pub(in super::super) const fn now() -> u64 {
        0
    }

    #[inline]
    pub(in super::super) const fn now_ordered() -> u64 {
        0
    }
}
