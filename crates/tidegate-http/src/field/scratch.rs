//! Bytes under construction: on the stack as long as they fit, else in a vector.
//!
//! Field values are written for every request, a few bytes at a time. This does less for
//! each piece than a general vector does.

/// Up to `N` bytes without an allocation.
#[derive(Clone)]
pub(super) struct Scratch<const N: usize> {
    len: usize,
    here: [u8; N],
    /// All of it, once it did not fit; empty before.
    there: Vec<u8>,
}

impl<const N: usize> Scratch<N> {
    pub(super) const fn new() -> Self {
        Self { len: 0, here: [0; N], there: Vec::new() }
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        match self.here.get_mut(self.len..self.len + bytes.len()) {
            Some(room) if self.there.is_empty() => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            _ => self.spill(bytes),
        }
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        if self.there.is_empty() {
            self.there.extend_from_slice(&self.here[..self.len]);
        }
        self.there.extend_from_slice(bytes);
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        if self.there.is_empty() { &self.here[..self.len] } else { &self.there }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0 && self.there.is_empty()
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.there.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_was_pushed(pieces in prop::collection::vec(any::<Vec<u8>>(), 0..6)) {
            let mut scratch = Scratch::<16>::new();
            scratch.push(b"before");
            scratch.clear();
            for piece in &pieces {
                scratch.push(piece);
            }
            prop_assert_eq!(scratch.bytes(), &pieces.concat()[..]);
            prop_assert_eq!(scratch.is_empty(), scratch.bytes().is_empty());
        }
    }
}
