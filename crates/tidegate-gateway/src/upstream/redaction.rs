//! Redaction: the configured key of a provider never reaches a caller.
//!
//! A provider, or a proxy in front of it, may echo the request it received. In headers and error
//! bodies the key is masked in whole or in part, in any case, also if it is JSON-escaped,
//! percent-encoded or in base64. In other bodies it is masked where it occurs in full. A mask is as
//! long as what it hides, so lengths stay correct.

use std::fmt;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem::Finder;

/// Replaces each byte of a key.
const MASK: u8 = b'*';
/// Maximum length of a key fragment that is not masked. Providers show no more than this in their
/// errors.
const MAX_SHOWN_LEN: usize = 7;
/// Shorter keys are placeholders for servers that need none.
const MIN_KEY_LEN: usize = 4;
/// Shorter keys may be words and are not masked in bodies other than errors.
const MIN_KEY_LEN_IN_BODIES: usize = 16;
/// Length of the n-grams that the filter tests.
const GRAM: usize = 4;
/// Base-2 logarithm of the number of bits in the filter.
const FILTER_BITS: u32 = 16;

/// Masks one key.
pub(crate) struct KeyRedactor {
    /// Encoded forms of the key, in lower case.
    forms: Vec<Vec<u8>>,
    /// Minimum length of a fragment that is masked.
    window: usize,
    /// Bitmap of the hashed 4-grams of all forms. Few other texts match.
    filter: Vec<u64>,
    /// Finds the full key; `None` if the key may be a word.
    full_key: Option<Finder<'static>>,
    /// Finds the key in header names.
    name_finder: Finder<'static>,
}

impl KeyRedactor {
    /// Returns `None` if the key is too short to be a secret.
    pub(crate) fn new(key: &str) -> Option<Self> {
        if key.len() < MIN_KEY_LEN {
            return None;
        }
        let window = key.len().min(MAX_SHOWN_LEN + 1);
        let mut forms: Vec<Vec<u8>> = Vec::new();
        for form in forms_of(key) {
            let form: Vec<u8> = form.bytes().map(fold).collect();
            if form.len() >= window && !forms.contains(&form) {
                forms.push(form);
            }
        }
        let mut filter = vec![0; 1 << (FILTER_BITS - 6)];
        for gram in forms.iter().flat_map(|form| form.windows(GRAM)) {
            let (word, bit) = filter_slot(gram);
            filter[word] |= 1 << bit;
        }
        let is_long_enough = key.len() >= MIN_KEY_LEN_IN_BODIES;
        let full_key = is_long_enough.then(|| Finder::new(key.as_bytes()).into_owned());
        let name_finder = Finder::new(key.to_ascii_lowercase().as_bytes()).into_owned();
        Some(Self { forms, window, filter, full_key, name_finder })
    }

    /// Whether a header name contains the full key. Fragments may be words.
    fn is_in_name(&self, name: &HeaderName) -> bool {
        let name = name.as_str().as_bytes();
        name.len() >= self.name_finder.needle().len() && self.name_finder.find(name).is_some()
    }

    /// Masks the key in header values. Removes headers whose name contains it.
    pub(crate) fn redact_headers(&self, headers: &mut HeaderMap) {
        let has_key = |(name, value): (&HeaderName, &HeaderValue)| {
            self.is_in_name(name) || self.find(value.as_bytes(), 0).is_some()
        };
        if !headers.iter().any(has_key) {
            return;
        }
        let mut kept = HeaderMap::with_capacity(headers.len());
        for (name, value) in headers.iter() {
            if self.is_in_name(name) {
                continue;
            }
            let masked = self.redact(value.as_bytes());
            let masked = masked.and_then(|masked| HeaderValue::from_bytes(&masked).ok());
            kept.append(name, masked.unwrap_or_else(|| value.clone()));
        }
        *headers = kept;
    }

    /// Masks the key and its fragments in a text; `None` if there are none.
    pub(crate) fn redact(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut matched = self.find(text, 0)?;
        let mut masked = text.to_vec();
        loop {
            let end = matched.end;
            masked[matched].fill(MASK);
            match self.find(text, end) {
                Some(next) => matched = next,
                None => return Some(masked),
            }
        }
    }

    /// Whether bodies other than errors are scanned.
    pub(crate) const fn scans_bodies(&self) -> bool {
        self.full_key.is_some()
    }

    /// Masks the full key in a chunk of a body.
    pub(crate) fn redact_chunk(&self, chunk: Bytes) -> Bytes {
        let Some(full_key) = &self.full_key else { return chunk };
        let Some(first) = full_key.find(&chunk) else { return chunk };
        let mut masked = chunk.to_vec();
        let length = full_key.needle().len();
        let mut matched = Some(first);
        while let Some(at) = matched {
            masked[at..at + length].fill(MASK);
            matched = full_key.find(&chunk[at + length..]).map(|next| at + length + next);
        }
        masked.into()
    }

    /// Returns how many bytes at the end of a chunk may be the start of the key.
    pub(crate) fn partial_key_len(&self, chunk: &[u8]) -> usize {
        let Some(key) = self.full_key.as_ref().map(Finder::needle) else { return 0 };
        let Some(first) = key.first() else { return 0 };
        let tail = &chunk[chunk.len().saturating_sub(key.len() - 1)..];
        let mut starts = memchr::memchr_iter(*first, tail);
        starts.find(|start| key.starts_with(&tail[*start..])).map_or(0, |start| tail.len() - start)
    }

    /// Finds the next fragment of the key in a text.
    ///
    /// It tests one n-gram per stride: any fragment as long as the window contains one of them
    /// completely.
    fn find(&self, text: &[u8], from: usize) -> Option<Range<usize>> {
        let stride = self.window + 1 - GRAM;
        let mut at = from;
        while let Some(gram) = text.get(at..at + GRAM) {
            let (word, bit) = filter_slot(gram);
            if self.filter[word] >> bit & 1 == 1
                && let Some(matched) = self.match_at(text, at, from)
            {
                return Some(matched);
            }
            at += stride;
        }
        None
    }

    /// Returns the longest fragment of a form around the offset `at`, not before `from`.
    fn match_at(&self, text: &[u8], at: usize, from: usize) -> Option<Range<usize>> {
        let is_same = |(one, other): &(&u8, &u8)| fold(**one) == **other;
        let matches = self.forms.iter().flat_map(|form| {
            (0..form.len()).filter_map(move |offset| {
                let after = text[at..].iter().zip(&form[offset..]).take_while(is_same).count();
                if after < GRAM {
                    return None;
                }
                let before = text[from..at].iter().rev().zip(form[..offset].iter().rev());
                Some(at - before.take_while(is_same).count()..at + after)
            })
        });
        matches.filter(|found| found.len() >= self.window).max_by_key(Range::len)
    }
}

/// Returns the key in plain form, JSON-escaped, percent-encoded, and in base64 at any alignment.
fn forms_of(key: &str) -> Vec<String> {
    let in_json = serde_json::Value::from(key).to_string();
    let in_json = in_json.trim_matches('"').to_owned();
    let with_slashes = in_json.replace('/', "\\/");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let in_url = key.bytes().map(|byte| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02x}"),
    });
    let mut forms = vec![key.to_owned(), in_json, with_slashes, in_url.collect()];
    for offset in 0..3 {
        let bytes = [&[0; 2][..offset.min(2)], key.as_bytes()].concat();
        // The first and last characters depend on the bytes around the key.
        let start = (offset * 8).div_ceil(6);
        let end = bytes.len() * 8 / 6;
        for text in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            forms.extend(text.get(start..end).map(str::to_owned));
        }
    }
    forms
}

/// Lower-cases letters; other characters may collide.
const fn fold(byte: u8) -> u8 {
    byte | 0x20
}

/// Returns the word and bit of an n-gram in the filter.
fn filter_slot(gram: &[u8]) -> (usize, u32) {
    let bytes = <[u8; GRAM]>::try_from(gram).unwrap_or_default();
    let folded = u32::from_le_bytes(bytes) | 0x2020_2020;
    let hash = folded.wrapping_mul(0x9e37_79b1) >> (32 - FILTER_BITS);
    (hash as usize >> 6, hash & 63)
}

impl fmt::Debug for KeyRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRedactor").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
