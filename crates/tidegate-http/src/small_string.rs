//! A string that stays on the stack while it is short.
//!
//! Keys and field values are written for every request, a few bytes at a time, and most are short.

use arrayvec::ArrayString;

/// A string of up to `N` bytes on the stack; longer ones move to the heap.
#[derive(Clone)]
pub(crate) enum SmallString<const N: usize> {
    Inline(ArrayString<N>),
    Heap(String),
}

impl<const N: usize> SmallString<N> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self::Inline(ArrayString::new_const())
    }

    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Inline(text) => text,
            Self::Heap(text) => text,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, more: &str) {
        match self {
            Self::Inline(text) => {
                if text.try_push_str(more).is_err() {
                    self.spill(more);
                }
            }
            Self::Heap(text) => text.push_str(more),
        }
    }

    #[cold]
    fn spill(&mut self, more: &str) {
        let mut joined = String::with_capacity(2 * (N + more.len()));
        joined.push_str(self.as_str());
        joined.push_str(more);
        *self = Self::Heap(joined);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn contains_what_was_pushed(pieces in prop::collection::vec(".{0,12}", 0..6)) {
            let mut text = SmallString::<16>::new();
            for piece in &pieces {
                text.push(piece);
            }
            prop_assert_eq!(text.as_str(), pieces.concat());
        }
    }
}
