//! Byte pair encoding: merges the bytes of a piece into tokens, the pair of lowest rank first.
//!
//! Pairs wait in a heap, so that a piece of `n` bytes takes `O(n log n)`: nothing that callers
//! send takes quadratic time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::vocabulary::{Rank, Vocabulary};

/// Merges pieces, reusing its memory.
pub(super) struct Merger<'v> {
    vocabulary: &'v Vocabulary,
    /// The parts, by the position of their first byte. Entries of other positions are stale.
    parts: Vec<Part>,
    /// Pairs by rank and position of the left part. Those of merged parts are stale.
    pairs: BinaryHeap<Reverse<(Rank, usize)>>,
}

/// A part of the piece, which is a token.
#[derive(Clone, Copy)]
struct Part {
    previous: usize,
    end: usize,
    /// Rank of the token that it forms with the next part, if that is a token.
    pair: Option<Rank>,
}

impl<'v> Merger<'v> {
    pub(super) const fn new(vocabulary: &'v Vocabulary) -> Self {
        Self { vocabulary, parts: Vec::new(), pairs: BinaryHeap::new() }
    }

    /// Counts the tokens of a piece.
    pub(super) fn count(&mut self, piece: &[u8]) -> usize {
        if piece.is_empty() || self.vocabulary.rank(piece).is_some() {
            return usize::from(!piece.is_empty());
        }
        self.split_into_bytes(piece);
        let mut count = piece.len();
        while let Some(Reverse((rank, left))) = self.pairs.pop() {
            if self.parts[left].pair == Some(rank) {
                self.merge(piece, left);
                count -= 1;
            }
        }
        count
    }

    fn split_into_bytes(&mut self, piece: &[u8]) {
        let byte = |at: usize| Part { previous: at.saturating_sub(1), end: at + 1, pair: None };
        self.parts.clear();
        self.parts.extend((0..piece.len()).map(byte));
        let mut pairs = std::mem::take(&mut self.pairs).into_vec();
        pairs.clear();
        for (left, pair) in piece.windows(2).enumerate() {
            let rank = self.vocabulary.rank(pair);
            self.parts[left].pair = rank;
            pairs.extend(rank.map(|rank| Reverse((rank, left))));
        }
        self.pairs = BinaryHeap::from(pairs);
    }

    /// Merges the part at `left` with the next one.
    fn merge(&mut self, piece: &[u8], left: usize) {
        let right = self.parts[left].end;
        let end = self.parts[right].end;
        self.parts[right].pair = None;
        self.parts[left].end = end;
        if let Some(next) = self.parts.get_mut(end) {
            next.previous = left;
        }
        self.find_pair(piece, left);
        if left > 0 {
            self.find_pair(piece, self.parts[left].previous);
        }
    }

    /// Looks up the token that the part at `left` forms with the next one.
    fn find_pair(&mut self, piece: &[u8], left: usize) {
        let next = self.parts.get(self.parts[left].end);
        let rank = next.and_then(|next| self.vocabulary.rank(&piece[left..next.end]));
        self.parts[left].pair = rank;
        self.pairs.extend(rank.map(|rank| Reverse((rank, left))));
    }
}
