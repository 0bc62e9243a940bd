//! Texts in JSON, counted as they pass.
//!
//! Counting is bounded: of a long prompt the beginning is counted, and the rest is taken to be like
//! it, but never thinner than any language is: a beginning of spaces would hide the rest. Images, sounds and signatures are long texts that no model reads as such; they are passed
//! over by the name of their member, or by what they look like. Images are counted one by one, as
//! what they cost is not in their bytes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::member::{Few, Member};
use crate::tokens;

/// How many bytes of a request's texts are counted one by one.
const COUNTED: u64 = 64 * 1_024;
/// At most so many bytes of the rest are a token. Languages have four or five, and fewer.
const MOST_BYTES_PER_TOKEN: u64 = 6;
/// What a turn costs beside its text, for the marks around it.
const AROUND: u64 = 4;
/// A shorter text is no picture.
const SHORTEST_BLOB: usize = 64;
/// No data URL has a longer beginning.
const LONGEST_TYPE: usize = 128;

/// Tokens so far.
#[derive(Default)]
pub(super) struct Counter {
    tokens: u64,
    counted_bytes: u64,
    /// Bytes that are only measured.
    other_bytes: u64,
    around: u64,
    images: u64,
}

impl Counter {
    /// The type of a part.
    fn add_if_image(&mut self, name: &str) {
        self.images += u64::from(matches!(name, "image" | "image_url" | "input_image"));
    }

    fn add_image(&mut self, _: &str) {
        self.images += 1;
    }

    fn add(&mut self, text: &str) {
        let left = usize::try_from(COUNTED - self.counted_bytes).unwrap_or(usize::MAX);
        let end = (0..=left.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        let (counted, rest) = text.split_at(end.unwrap_or(0));
        if !counted.is_empty() {
            self.tokens = self.tokens.saturating_add(tokens::count(counted));
            self.counted_bytes += length(counted);
        }
        self.other_bytes = self.other_bytes.saturating_add(length(rest));
        if !rest.is_empty() {
            // A character that did not fit must not open the door again.
            self.counted_bytes = COUNTED;
        }
    }

    /// All of them, the rest taken to be like the beginning, with so many for an image.
    pub(super) fn tokens(&self, per_image: u64) -> u64 {
        let images = self.images.saturating_mul(per_image);
        let rest = u128::from(self.other_bytes) * u128::from(self.tokens)
            / u128::from(self.counted_bytes.max(1));
        let rest = u64::try_from(rest).unwrap_or(u64::MAX);
        let rest = rest.max(self.other_bytes / MOST_BYTES_PER_TOKEN);
        self.tokens.saturating_add(rest).saturating_add(self.around).saturating_add(images)
    }
}

/// Whether it is bytes in base64 rather than words.
fn is_blob(text: &str) -> bool {
    let is_digit = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'\n')
    };
    text.len() >= SHORTEST_BLOB && text.bytes().all(is_digit)
}

/// Whether it is an image, a sound or a file as a URL, and not a text that begins like one.
fn is_data_url(text: &str) -> bool {
    let Some((head, data)) = text.strip_prefix("data:").and_then(|rest| rest.split_once(','))
    else {
        return false;
    };
    let is_head = head.len() <= LONGEST_TYPE && head.ends_with(";base64");
    is_head && (data.len() < SHORTEST_BLOB || is_blob(data))
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// Counts every text of a value.
pub(super) struct Texts<'c> {
    counter: &'c mut Counter,
    depth: Depth,
}

/// Where in a request a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// It is a member of the body: what is in its list are turns, tools or texts.
    Top,
    Inside,
    /// It may be a file rather than a text.
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

/// What was counted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Piece {
    /// A token by its number.
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

    /// A token by its number, in a prompt that is a list of them.
    fn visit_u64<E>(self, _: u64) -> Result<Piece, E> {
        self.counter.around += 1;
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
                self.counter.around += AROUND;
            }
        }
        Ok(Piece::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Piece, A::Error> {
        while let Some(member) = map.next_key::<Member>()? {
            match member {
                Member::Text => {
                    // Names of members count where they are a schema; elsewhere it is not much.
                    self.counter.around += 1;
                    map.next_value_seed(Texts::inside(self.counter))?;
                }
                Member::Data => {
                    let counter = &mut *self.counter;
                    map.next_value_seed(Texts { counter, depth: Depth::Data })?;
                }
                Member::Type => {
                    let counter = &mut *self.counter;
                    map.next_value_seed(Few { counter, see: Counter::add_if_image })?;
                }
                Member::Images => {
                    let counter = &mut *self.counter;
                    map.next_value_seed(Few { counter, see: Counter::add_image })?;
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

/// Reads one value with a visitor; what that does not accept is passed over.
pub(super) struct Lenient<V>(pub(super) V);

/// Values that are given to the visitor, or passed over if it wants none of them.
macro_rules! pass_over {
    ($($visit:ident($value:ty)),*) => {
        $(fn $visit<E: Error>(self, value: $value) -> Result<V::Value, E> {
            Ok(self.0.$visit::<E>(value).unwrap_or_default())
        })*
    };
}

impl<'de, V> Visitor<'de> for Lenient<V>
where
    V: Visitor<'de> + OfObjects,
    V::Value: Default,
{
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    pass_over!(visit_str(&str), visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64));

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        Ok(V::Value::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<V::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(V::Value::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<V::Value, A::Error> {
        if V::WANTS_OBJECTS {
            return self.0.visit_map(map);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(V::Value::default())
    }
}

/// Whether a visitor reads objects: one that was begun cannot be passed over any more.
pub(super) trait OfObjects {
    const WANTS_OBJECTS: bool;
}
