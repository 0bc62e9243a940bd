//! Tokens of a text that comes in pieces.

use std::fmt;

use super::count;

/// Words are counted together, as a vocabulary does, when so many bytes of them are there: 4 KiB.
const CHUNK: usize = 4 * 1_024;
/// How many bytes are counted one by one: 256 KiB. What comes after is taken to be like them.
const COUNTED: usize = 256 * 1_024;

/// Counts the tokens of a text that comes in pieces. It keeps a few kilobytes of the text until they
/// are counted. `Debug` shows no text.
///
/// ```
/// use tidegate_providers::tokens::{TextCounter, count};
/// let mut counter = TextCounter::default();
/// for piece in ["The ti", "de is", " out."] {
///     counter.add(piece);
/// }
/// assert_eq!(counter.total(), count("The tide is out."));
/// ```
#[derive(Clone, Default)]
pub struct TextCounter {
    pending: String,
    tokens: u64,
    /// Bytes behind `tokens`.
    counted: usize,
    /// Bytes that are only measured.
    measured: u64,
}

impl TextCounter {
    /// A further piece.
    pub fn add(&mut self, mut text: &str) {
        while !text.is_empty() {
            if self.counted >= COUNTED {
                self.measured = self.measured.saturating_add(text.len() as u64);
                return;
            }
            let room = CHUNK.saturating_sub(self.pending.len()).min(text.len());
            // A character that does not fit makes a chunk a few bytes longer.
            let end = (room..=text.len()).find(|end| text.is_char_boundary(*end));
            let (piece, rest) = text.split_at(end.unwrap_or(text.len()));
            self.pending.push_str(piece);
            text = rest;
            if self.pending.len() >= CHUNK {
                self.count_words();
            }
        }
    }

    /// The tokens so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        let tokens = self.tokens.saturating_add(count(&self.pending));
        let counted = (self.counted + self.pending.len()).max(1) as u128;
        let rest = u128::from(self.measured) * u128::from(tokens) / counted;
        tokens.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX))
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counted == 0 && self.pending.is_empty()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.pending.clear();
        (self.tokens, self.counted, self.measured) = (0, 0, 0);
    }

    /// Counts what is pending, up to the last space: words are tokens with the space before them.
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
    use super::*;

    fn counted(text: &str, piece: usize) -> u64 {
        let mut counter = TextCounter::default();
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(piece) {
            counter.add(&piece.iter().collect::<String>());
        }
        counter.total()
    }

    #[test]
    fn pieces_are_counted_like_the_whole() {
        for text in ["The tide, as it were, was out. ".repeat(1_000), "潮水退了。".repeat(3_000)]
        {
            let whole = count(&text);
            for piece in [1, 5, 1_000, usize::MAX] {
                let counted = counted(&text, piece);
                let difference = counted.abs_diff(whole);
                assert!(difference * 200 <= whole, "{counted} of {whole}, by {piece}");
            }
        }
    }

    #[test]
    fn the_rest_of_a_very_long_text_is_taken_to_be_like_its_beginning() {
        let text = "one two three four ".repeat(100_000);
        let (counted, whole) = (counted(&text, 10_000), count(&text));
        assert!(counted.abs_diff(whole) * 100 <= whole, "{counted} of {whole}");
    }

    #[test]
    fn no_text_is_kept_or_shown() {
        let mut counter = TextCounter::default();
        counter.add("secret");
        assert!(!format!("{counter:?}").contains("secret") && !counter.is_empty());
        counter.clear();
        assert!(counter.is_empty() && counter.total() == 0);
    }
}
