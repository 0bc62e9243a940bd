//! Token counting for text that arrives in pieces.

use std::fmt;

use tidegate_providers::tokens::count;

/// Bytes that are collected before they are counted, so that words are not split: 4 KiB.
const CHUNK: usize = 4 * 1_024;
/// Bytes that are counted exactly: 256 KiB. Text beyond is extrapolated from them.
const MAX_COUNTED: usize = 256 * 1_024;

/// Counts the tokens of a text that arrives in pieces. Buffers a few kilobytes of the text until they
/// are counted. `Debug` shows no text.
#[derive(Clone, Default)]
pub(super) struct TextCounter {
    pending: String,
    tokens: u64,
    /// Bytes that `tokens` covers.
    counted: usize,
    /// Bytes beyond [`MAX_COUNTED`], of which only the number is known.
    uncounted: u64,
}

impl TextCounter {
    /// Adds a piece.
    pub(super) fn add(&mut self, mut text: &str) {
        while !text.is_empty() {
            if self.counted >= MAX_COUNTED {
                self.uncounted = self.uncounted.saturating_add(text.len() as u64);
                return;
            }
            let free = CHUNK.saturating_sub(self.pending.len()).min(text.len());
            // A character that straddles the end makes the chunk a few bytes longer.
            let end = (free..=text.len()).find(|end| text.is_char_boundary(*end));
            let (piece, rest) = text.split_at(end.unwrap_or(text.len()));
            self.pending.push_str(piece);
            text = rest;
            if self.pending.len() >= CHUNK {
                self.count_words();
            }
        }
    }

    /// Returns the number of tokens so far.
    pub(super) fn total(&self) -> u64 {
        let tokens = self.tokens.saturating_add(count(&self.pending));
        let counted = (self.counted + self.pending.len()).max(1) as u128;
        let rest = u128::from(self.uncounted) * u128::from(tokens) / counted;
        tokens.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX))
    }

    /// Starts again from zero.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        (self.tokens, self.counted, self.uncounted) = (0, 0, 0);
    }

    /// Counts the pending text up to its last space: a token includes the space before its word.
    fn count_words(&mut self) {
        let end = self.pending.rfind(char::is_whitespace).filter(|end| *end > 0);
        let rest = self.pending.split_off(end.unwrap_or(self.pending.len()));
        self.tokens = self.tokens.saturating_add(count(&self.pending));
        self.counted += self.pending.len();
        self.pending = rest;
    }
}

impl fmt::Debug for TextCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextCounter").field("total", &self.total()).finish()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_providers::tokens::prepare;

    use super::*;

    fn count_in_pieces(text: &str, piece: usize) -> u64 {
        prepare();
        let mut counter = TextCounter::default();
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(piece) {
            counter.add(&piece.iter().collect::<String>());
        }
        counter.total()
    }

    #[test]
    fn pieces_add_up_to_the_count_of_the_joined_text() {
        prepare();
        let mut counter = TextCounter::default();
        for piece in ["The ti", "de is", " out."] {
            counter.add(piece);
        }
        assert_eq!(counter.total(), count("The tide is out."));
    }

    #[test]
    fn long_text_in_pieces_counts_like_the_joined_text() {
        prepare();
        for text in ["The tide, as it were, was out. ".repeat(1_000), "潮水退了。".repeat(3_000)]
        {
            let joined = count(&text);
            for piece in [1, 5, 1_000, usize::MAX] {
                let counted = count_in_pieces(&text, piece);
                let difference = counted.abs_diff(joined);
                assert!(difference * 200 <= joined, "{counted} of {joined}, by {piece}");
            }
        }
    }

    #[test]
    fn text_beyond_the_counted_part_is_extrapolated() {
        let text = "one two three four ".repeat(100_000);
        let (counted, joined) = (count_in_pieces(&text, 10_000), count(&text));
        assert!(counted.abs_diff(joined) * 100 <= joined, "{counted} of {joined}");
    }

    #[test]
    fn debug_shows_no_text_and_clear_resets_the_count() {
        let mut counter = TextCounter::default();
        counter.add("secret");
        assert!(!format!("{counter:?}").contains("secret") && counter.total() > 0);
        counter.clear();
        assert!(counter.pending.is_empty() && counter.total() == 0);
    }
}
