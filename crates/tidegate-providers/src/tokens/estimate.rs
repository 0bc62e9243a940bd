//! Estimates the tokens of a text by its characters, without a vocabulary.
//!
//! The weights are averages over prose, code and JSON in the encoding that
//! [`count`](super::count) uses, where prose of most languages comes within a third.

/// Estimates the tokens of a text.
pub(super) fn tokens(text: &str) -> u64 {
    text.chars().map(percent).sum::<u64>().div_ceil(100)
}

/// Average tokens per hundred characters of a kind.
const fn percent(character: char) -> u64 {
    match character {
        'a'..='z' | 'A'..='Z' | ' ' | '\n' | '\r' | '\t' => 22,
        '0'..='9' => 40,
        '\0'..='\x7f' => 55,
        // Latin with accents, Greek, Cyrillic, Hebrew, Arabic.
        '\u{80}'..='\u{7ff}' => 30,
        // Scripts of India and South-East Asia, Georgian, Ethiopic; typographic symbols.
        '\u{800}'..='\u{2e7f}' => 35,
        // Chinese, Japanese, Korean; emoji.
        _ => 80,
    }
}
