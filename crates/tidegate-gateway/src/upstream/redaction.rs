//! Redaction: the configured key of a provider never reaches a caller.
//!
//! A provider, or a proxy in front of it, may show the request that it received. The key is masked in
//! headers and in errors, whole or in part, in any case, also escaped as JSON, percent-encoded or in
//! base64; and in other bodies wherever it is whole. A mask is as long as what it hides, so that
//! lengths stay true.

use std::fmt;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem::Finder;

/// What hides a byte.
const MASK: u8 = b'*';
/// A part of the key that is as long as this is hidden. Providers show less of it in their errors.
const MAX_SHOWN_LEN: usize = 7;
/// Keys that are shorter than this are placeholders for servers that need none.
const MIN_KEY_LEN: usize = 4;
/// Keys that are shorter than this may be words, and are not looked for in answers that are no
/// errors.
const MIN_KEY_LEN_IN_BODIES: usize = 16;
/// Texts are looked at in pieces of this length first.
const GRAM: usize = 4;
/// The number of bits in the filter, as a power of two.
const FILTER_BITS: u32 = 16;

/// Hides one key.
pub(crate) struct KeyRedactor {
    /// The forms that the key may have, in lower case.
    forms: Vec<Vec<u8>>,
    /// The shortest part of a form that is hidden.
    window: usize,
    /// Which pieces of four bytes occur in a form, by their hash. Hardly any other text has one.
    filter: Vec<u64>,
    /// Finds the whole key. `None` if the key may be a word.
    full_key: Option<Finder<'static>>,
    /// The key as it would stand in the name of a header.
    in_name: Finder<'static>,
}

impl KeyRedactor {
    /// `None` if the key is too short to be a secret.
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
        let is_long_lasting = key.len() >= MIN_KEY_LEN_IN_BODIES;
        let full_key = is_long_lasting.then(|| Finder::new(key.as_bytes()).into_owned());
        let in_name = Finder::new(key.to_ascii_lowercase().as_bytes()).into_owned();
        Some(Self { forms, window, filter, full_key, in_name })
    }

    /// Whether the whole key is in the name of a header. Parts of it may be words.
    fn is_in_name(&self, name: &HeaderName) -> bool {
        let name = name.as_str().as_bytes();
        name.len() >= self.in_name.needle().len() && self.in_name.find(name).is_some()
    }

    /// Hides the key in headers. A header whose name has it is removed.
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

    /// A text in which the key and its parts are hidden; `None` if there are none.
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

    /// Whether answers that are no errors are looked through.
    pub(crate) const fn scans_bodies(&self) -> bool {
        self.full_key.is_some()
    }

    /// A piece of an answer in which the whole key is hidden.
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

    /// How many bytes at the end of a piece may be the beginning of the key.
    pub(crate) fn partial_key_len(&self, chunk: &[u8]) -> usize {
        let Some(key) = self.full_key.as_ref().map(Finder::needle) else { return 0 };
        let Some(first) = key.first() else { return 0 };
        let tail = &chunk[chunk.len().saturating_sub(key.len() - 1)..];
        let mut starts = memchr::memchr_iter(*first, tail);
        starts.find(|start| key.starts_with(&tail[*start..])).map_or(0, |start| tail.len() - start)
    }

    /// The next part of the key in a text.
    ///
    /// A part that is as long as the window has a whole piece at one of the places that are looked
    /// at.
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

    /// The part of a form around a place in a text, not before `from`.
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

/// The key as it may be written: plain, in JSON, in a URL, and in base64 with anything around it.
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
        // Characters at both ends depend on what is around the key.
        let start = (offset * 8).div_ceil(6);
        let end = bytes.len() * 8 / 6;
        for text in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            forms.extend(text.get(start..end).map(str::to_owned));
        }
    }
    forms
}

/// Lower case for letters; other characters may share a form.
const fn fold(byte: u8) -> u8 {
    byte | 0x20
}

/// The bit of a piece in the filter.
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
