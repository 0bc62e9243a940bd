//! Prefetching of cache lines.
//!
//! Decisions on many keys spend most of their time waiting for memory. Prefetching the lines of all
//! keys first lets the loads overlap. A prefetch is only a hint: it reads nothing and may do
//! nothing.

/// Prefetches the cache line at the start of `value`.
///
/// Does nothing on architectures other than x86-64.
#[doc(hidden)]
#[inline]
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the instruction is only available as an intrinsic")
)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of SSE, which every x86-64 processor has. It is a hint that
    // neither reads nor faults, whatever the address, and this one comes from a reference.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_changes_nothing() {
        let values = [1_u64, 2, 3];
        for value in &values {
            prefetch(value);
        }
        prefetch(&());
        assert_eq!(values, [1, 2, 3]);
    }
}
