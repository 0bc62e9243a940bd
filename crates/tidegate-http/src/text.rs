//! A string that stays on the stack while it is short.
//!
//! Keys and field values are written for every request, a few bytes at a time, and most are short.

use arrayvec::ArrayString;

/// A string of up to `N` bytes on the stack; longer ones move to the heap.
#[derive(Clone)]
pub(crate) enum Text<const N: usize> {
    Here(ArrayString<N>),
    There(String),
}

impl<const N: usize> Text<N> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self::Here(ArrayString::new_const())
    }

    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Here(text) => text,
            Self::There(text) => text,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, more: &str) {
        match self {
            Self::Here(text) => {
                if text.try_push_str(more).is_err() {
                    self.spill(more);
                }
            }
            Self::There(text) => text.push_str(more),
        }
    }

    #[cold]
    fn spill(&mut self, more: &str) {
        let mut whole = String::with_capacity(2 * (N + more.len()));
        whole.push_str(self.as_str());
        whole.push_str(more);
        *self = Self::There(whole);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_was_pushed(pieces in prop::collection::vec(".{0,12}", 0..6)) {
            let mut text = Text::<16>::new();
            for piece in &pieces {
                text.push(piece);
            }
            prop_assert_eq!(text.as_str(), pieces.concat());
        }
    }
}
