//! Counts the tokens of text in JSON while it is parsed.
//!
//! Counting is bounded: the beginning of a long prompt is counted and the rest is extrapolated,
//! with a lower bound on its density, since leading spaces would otherwise hide it. Images, audio
//! and signatures are long strings that a model does not read as text. They are skipped by member
//! name or by form. Images are counted individually because their cost does not depend on their
//! bytes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::member::{Member, Strings};
use crate::tokens::TokenCounter;

/// Bytes of text that are counted exactly.
const MAX_COUNTED: u64 = 64 * 1_024;
/// Maximum bytes per token assumed for the rest. Languages have five or fewer.
const MAX_BYTES_PER_TOKEN: u64 = 6;
/// Tokens that delimit each message.
const OVERHEAD: u64 = 4;
/// Minimum length of a string that is taken for binary data.
const MIN_BLOB: usize = 64;
/// Maximum length of the media type of a data URL.
const MAX_MEDIA_TYPE: usize = 128;

/// Token counts so far.
#[derive(Default)]
pub(super) struct Counter {
    /// Chosen with the first text, so that all texts of a request are counted in one way.
    counter: Option<TokenCounter>,
    tokens: u64,
    counted_bytes: u64,
    /// Bytes beyond [`MAX_COUNTED`].
    uncounted_bytes: u64,
    overhead: u64,
    images: u64,
}

impl Counter {
    /// Counts an image if this is the type of an image part.
    fn add_if_image(&mut self, name: &str) {
        self.images += u64::from(matches!(name, "image" | "image_url" | "input_image"));
    }

    fn add_image(&mut self, _: &str) {
        self.images += 1;
    }

    fn add(&mut self, text: &str) {
        let left = usize::try_from(MAX_COUNTED - self.counted_bytes).unwrap_or(usize::MAX);
        let end = (0..=left.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        let (counted, rest) = text.split_at(end.unwrap_or(0));
        if !counted.is_empty() {
            let counter = self.counter.get_or_insert_with(TokenCounter::current);
            self.tokens = self.tokens.saturating_add(counter.count(counted));
            self.counted_bytes += length(counted);
        }
        self.uncounted_bytes = self.uncounted_bytes.saturating_add(length(rest));
        if !rest.is_empty() {
            // A character that did not fit must not let later text be counted.
            self.counted_bytes = MAX_COUNTED;
        }
    }

    /// Returns whether texts were estimated because the vocabulary was not ready.
    pub(super) fn is_provisional(&self) -> bool {
        self.counter.is_some_and(|counter| counter.is_provisional())
    }

    /// Returns the total, with the rest extrapolated and `per_image` tokens for each image.
    pub(super) fn tokens(&self, per_image: u64) -> u64 {
        let images = self.images.saturating_mul(per_image);
        let rest = u128::from(self.uncounted_bytes) * u128::from(self.tokens)
            / u128::from(self.counted_bytes.max(1));
        let rest = u64::try_from(rest).unwrap_or(u64::MAX);
        let rest = rest.max(self.uncounted_bytes / MAX_BYTES_PER_TOKEN);
        self.tokens.saturating_add(rest).saturating_add(self.overhead).saturating_add(images)
    }
}

/// Returns whether a string is base64 rather than text.
fn is_blob(text: &str) -> bool {
    let is_digit = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'\n')
    };
    text.len() >= MIN_BLOB && text.bytes().all(is_digit)
}

/// Returns whether a string is a base64 data URL, and not text that begins like one.
fn is_data_url(text: &str) -> bool {
    let Some((head, data)) = text.strip_prefix("data:").and_then(|rest| rest.split_once(','))
    else {
        return false;
    };
    let is_head = head.len() <= MAX_MEDIA_TYPE && head.ends_with(";base64");
    is_head && (data.len() < MIN_BLOB || is_blob(data))
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// Counts all text in a value.
pub(super) struct Texts<'c> {
    counter: &'c mut Counter,
    depth: Depth,
}

/// Position of a value in the request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// A member of the body, whose list elements are messages, tools or strings.
    Top,
    Inside,
    /// A member that may be a file rather than text.
    Data,
}

impl<'c> Texts<'c> {
    pub(super) const fn new(counter: &'c mut Counter) -> Self {
        Self { counter, depth: Depth::Top }
    }

    const fn inside(counter: &'c mut Counter) -> Self {
        Self { counter, depth: Depth::Inside }
    }
}

/// What a value was counted as.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Piece {
    /// A token id.
    Token,
    #[default]
    Other,
}

impl<'de> DeserializeSeed<'de> for Texts<'_> {
    type Value = Piece;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Piece, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Texts<'_> {
    type Value = Piece;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_str<E>(self, text: &str) -> Result<Piece, E> {
        let is_file = self.depth == Depth::Data && is_blob(text);
        if !is_file && !is_data_url(text) {
            self.counter.add(text);
        }
        Ok(Piece::Other)
    }

    /// Counts a token id of a prompt given as token ids.
    fn visit_u64<E>(self, _: u64) -> Result<Piece, E> {
        self.counter.overhead += 1;
        Ok(Piece::Token)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Piece, E> {
        Ok(Piece::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Piece, E> {
        Ok(Piece::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Piece, E> {
        Ok(Piece::Other)
    }

    fn visit_unit<E>(self) -> Result<Piece, E> {
        Ok(Piece::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Piece, A::Error> {
        while let Some(piece) = list.next_element_seed(Texts::inside(self.counter))? {
            if self.depth == Depth::Top && piece == Piece::Other {
                self.counter.overhead += OVERHEAD;
            }
        }
        Ok(Piece::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Piece, A::Error> {
        while let Some(member) = map.next_key::<Member>()? {
            match member {
                Member::Text => {
                    // Member names count in schemas; elsewhere the error is small.
                    self.counter.overhead += 1;
                    map.next_value_seed(Texts::inside(self.counter))?;
                }
                Member::Data => {
                    let counter = &mut *self.counter;
                    map.next_value_seed(Texts { counter, depth: Depth::Data })?;
                }
                Member::Type => {
                    let counter = &mut *self.counter;
                    map.next_value_seed(Strings { counter, on_string: Counter::add_if_image })?;
                }
                Member::Images => {
                    let counter = &mut *self.counter;
                    map.next_value_seed(Strings { counter, on_string: Counter::add_image })?;
                }
                Member::Image => {
                    self.counter.images += 1;
                    map.next_value::<IgnoredAny>()?;
                }
                Member::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Piece::Other)
    }
}

/// Reads a value with a visitor, and skips a value that the visitor does not accept.
pub(super) struct Lenient<V>(pub(super) V);

/// Passes scalar values to the visitor, with a default if it does not accept them.
macro_rules! or_default {
    ($($visit:ident($value:ty)),*) => {
        $(fn $visit<E: Error>(self, value: $value) -> Result<V::Value, E> {
            Ok(self.0.$visit::<E>(value).unwrap_or_default())
        })*
    };
}

impl<'de, V> Visitor<'de> for Lenient<V>
where
    V: Visitor<'de> + AcceptsObjects,
    V::Value: Default,
{
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    or_default!(visit_str(&str), visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64));

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        Ok(V::Value::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<V::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(V::Value::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<V::Value, A::Error> {
        if V::ACCEPTS_OBJECTS {
            return self.0.visit_map(map);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(V::Value::default())
    }
}

/// Whether a visitor accepts objects. Known in advance, since an object cannot be skipped once its
/// visitor has started to read it.
pub(super) trait AcceptsObjects {
    const ACCEPTS_OBJECTS: bool;
}
