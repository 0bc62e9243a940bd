//! A deterministic mutator of seeds.
//!
//! It is not guided by coverage, so its inputs stay close to the seeds: a few changes each, of
//! bytes, ranges, numbers, and words that parsers look for.

/// Maximum length of an input.
const MAX_INPUT: usize = 16 * 1_024;
/// Maximum number of changes in an input.
const MAX_CHANGES: u64 = 5;

/// Words that parsers look for or often mishandle.
const WORDS: [&[u8]; 44] = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"\r",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b";",
    b"=",
    b"%",
    b"%25",
    b"%2F",
    b"/",
    b"..",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"-0.0",
    b"0.1",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775808",
    b"99999999999999999999999999",
    b"data:",
    b"data: [DONE]",
    b"type",
    b"model",
    b"stream",
    b"usage",
    b"\xEF\xBB\xBF",
    b"\xFF\xFE",
    b"\xC3\x28",
    b"\xF0\x9F\x92\xA9",
    b"Infinity",
];

/// Generates inputs from seeds.
#[derive(Clone, Debug)]
pub struct Mutator {
    seeds: Vec<Vec<u8>>,
    state: u64,
}

impl Mutator {
    /// Creates a mutator for these seeds; the number determines its sequence.
    ///
    /// # Panics
    /// If there are no seeds.
    #[must_use]
    pub fn new(seeds: Vec<Vec<u8>>, number: u64) -> Self {
        assert!(!seeds.is_empty(), "a mutator needs seeds");
        Self { seeds, state: number | 1 }
    }

    /// The next input.
    pub fn input(&mut self) -> Vec<u8> {
        let mut input = self.seed().to_vec();
        for _ in 0..=self.below(MAX_CHANGES) {
            self.change(&mut input);
        }
        input.truncate(MAX_INPUT);
        input
    }

    fn seed(&mut self) -> &[u8] {
        let index = self.index(self.seeds.len());
        &self.seeds[index]
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.index(input.len() + 1);
        match self.below(9) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.byte(),
            2 => input.insert(at, self.byte()),
            3 => {
                let word = WORDS[self.index(WORDS.len())];
                input.splice(at..at, word.iter().copied());
            }
            4 => {
                let range = self.range(input.len());
                input.drain(range);
            }
            5 => {
                let range = self.range(input.len());
                let copy = input[range].to_vec();
                input.splice(at..at, copy);
            }
            6 => {
                let other = self.seed().to_vec();
                let range = self.range(other.len());
                input.splice(at..at, other[range].iter().copied());
            }
            7 => self.replace_number(input),
            _ => input.truncate(at),
        }
    }

    /// Replaces a run of digits with a word.
    fn replace_number(&mut self, input: &mut Vec<u8>) {
        let from = self.index(input.len() + 1);
        let Some(start) = input[from..].iter().position(u8::is_ascii_digit) else { return };
        let start = from + start;
        let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let word = WORDS[self.index(WORDS.len())];
        input.splice(start..start + length, word.iter().copied());
    }

    /// A range within this length; usually short.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.index(length + 1);
        let most = if self.below(4) == 0 { length } else { 16 };
        let size = self.index(most + 1).min(length - start);
        start..start + size
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap_or_default()
    }

    /// A random number below `bound`; zero if `bound` is zero (xorshift64*).
    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % bound.max(1)
    }
}
