//! The time stamp counter of x86-64: reading it, and whether the processor says that it is steady.
//!
//! On other processors there is none here. On 64-bit ARM the operating system's clock is a reading
//! of such a counter already, and costs little more.

#![allow(unsafe_code, reason = "the instructions have no safe form in older compilers")]

pub(super) use machine::{is_invariant, now, now_ordered};

#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
mod machine {
    #![allow(unused_unsafe, reason = "newer compilers have a safe form of some of these")]

    use std::arch::x86_64::{__cpuid, _mm_lfence, _rdtsc};

    /// The leaf of CPUID with power management, and the bit in EDX that promises a counter which
    /// goes on at one rate whatever the processor does.
    const POWER_MANAGEMENT_LEAF: u32 = 0x8000_0007;
    const INVARIANT_BIT: u32 = 1 << 8;
    /// The leaf that tells which is the last of its kind.
    const MAX_LEAF: u32 = 0x8000_0000;

    pub(in super::super) fn is_invariant() -> bool {
        // SAFETY: every x86-64 processor has CPUID, and a leaf is asked for only if it is there.
        unsafe {
            __cpuid(MAX_LEAF).eax >= POWER_MANAGEMENT_LEAF
                && __cpuid(POWER_MANAGEMENT_LEAF).edx & INVARIANT_BIT != 0
        }
    }

    /// The counter. The processor may read it before what stands ahead of it is done.
    #[inline]
    pub(in super::super) fn now() -> u64 {
        // SAFETY: every x86-64 processor has RDTSC. It touches no memory. Where the system forbids
        // it to programs, it does not use the counter for its own clock, and neither do we.
        unsafe { _rdtsc() }
    }

    /// The counter, read after everything that stands ahead is done.
    #[inline]
    pub(in super::super) fn now_ordered() -> u64 {
        // SAFETY: LFENCE is part of SSE2, which every x86-64 processor has. It touches no memory.
        unsafe { _mm_lfence() };
        now()
    }
}

#[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
mod machine {
    pub(in super::super) const fn is_invariant() -> bool {
        false
    }

    /// Never asked, since no clock is made of a counter that is not invariant.
    #[inline]
    pub(in super::super) const fn now() -> u64 {
        0
    }

    #[inline]
    pub(in super::super) const fn now_ordered() -> u64 {
        0
    }
}
