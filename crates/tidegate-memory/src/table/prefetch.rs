//! Asking for memory before it is needed.
//!
//! Decisions on many keys wait for memory most of the time. Whoever knows the places beforehand
//! asks for all of them, and by the time the first is read the others are on their way. This is a
//! hint: it reads nothing and may do nothing.

/// Asks the processor to have the cache line at the start of this value soon.
///
/// It does nothing where no instruction for it is known.
#[doc(hidden)]
#[inline]
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the instruction is to be had as an intrinsic alone")
)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction belongs to SSE, which every x86_64 processor has; it is a hint that
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
