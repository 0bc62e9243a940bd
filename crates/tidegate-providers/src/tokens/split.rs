//! Splits a text into the pieces that are tokenized separately: words, numbers, punctuation, space.
//!
//! The encoding defines the pieces by a regular expression with a look-ahead, which an automaton
//! cannot evaluate. The look-ahead is only about space, so [`Splitter`] matches everything else
//! by an automaton and space by hand.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

/// The alternatives of the encoding's definition, except for space that no line ends in.
const PIECES: [&str; 5] = [
    // A word that ends in lower case, with the character before it and a contraction after it.
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    // A word that begins in upper case.
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    // Up to three digits.
    r"\p{N}{1,3}",
    // Punctuation with a space before it, and slashes and line ends after it.
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    // Line ends with the space before them.
    r"\s*[\r\n]+",
];

/// Splits texts into pieces.
#[derive(Debug)]
pub(super) struct Splitter {
    pieces: Regex,
}

impl Splitter {
    /// Compiles the expression.
    ///
    /// # Panics
    ///
    /// Never: the expression is a constant.
    pub(super) fn new() -> Self {
        let pieces = Regex::new(&PIECES.join("|")).expect("the expression is valid");
        Self { pieces }
    }

    /// Returns the pieces of a text. Together they are the text.
    pub(super) fn pieces<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let input = Input::new(rest).anchored(Anchored::Yes);
            let end = self.pieces.find(input).map_or_else(|| end_of_space(rest), |it| it.end());
            let (piece, after) = rest.split_at(end);
            rest = after;
            Some(piece)
        })
    }
}

/// Returns where a piece of space ends: the last space before a word belongs to the word, unless
/// there is only one, which then did not fit to it.
fn end_of_space(text: &str) -> usize {
    let word = text.trim_start();
    let space = text.len() - word.len();
    match text[..space].char_indices().next_back() {
        Some((last, _)) if last > 0 && !word.is_empty() => last,
        Some(_) => space,
        // Every other character begins a piece; this one would be a piece of its own.
        None => text.chars().next().map_or(0, char::len_utf8),
    }
}
