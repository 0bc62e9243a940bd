//! The common value type of TOML and JSON, with positions.
//!
//! Rules are written once for this type and apply to the file and to the HTTP API. It keeps
//! duplicate keys, so that they can be rejected, and does not interpret anything.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tidegate_core::{Decimal, DecimalError};

use crate::values::setting::Position;
use crate::violation::Rule;

/// A value with its position.
#[derive(Clone, Debug)]
pub struct Value<'a> {
    /// The content.
    pub node: Node<'a>,
    /// Where it was read.
    pub position: Position,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub enum Node<'a> {
    /// JSON null; does not occur in TOML.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string. A TOML date becomes its text.
    Text(Cow<'a, str>),
    /// A list.
    List(Vec<Value<'a>>),
    /// A table, in text order.
    Table(Vec<Entry<'a>>),
}

/// An entry of a table.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The key.
    pub key: Cow<'a, str>,
    /// Where the key was read.
    pub position: Position,
    /// The value.
    pub value: Value<'a>,
}

/// A number as written. A float stands for its shortest decimal representation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A non-negative integer.
    Whole(u64),
    /// A negative integer.
    Negative(i64),
    /// A number with a fraction or an exponent, or one that does not fit 64 bits.
    Float(f64),
}

impl Number {
    /// Converts to an exact decimal.
    ///
    /// # Errors
    /// If the number is negative, not finite, or has too many digits.
    pub fn decimal(self) -> Result<Decimal, DecimalError> {
        match self {
            Self::Whole(whole) => Ok(whole.into()),
            Self::Negative(_) => Err(DecimalError::Negative),
            // Negative zero is zero.
            Self::Float(0.0) => Ok(0.into()),
            Self::Float(float) => Decimal::try_from(float),
        }
    }

    /// Returns the number if it is a non-negative integer; 1.0 counts as one.
    #[must_use]
    pub fn whole(self) -> Option<u64> {
        self.decimal().ok()?.whole()
    }

    /// Returns the number if it is an integer that fits `i64`.
    #[must_use]
    pub fn signed(self) -> Option<i64> {
        match self {
            Self::Negative(whole) => Some(whole),
            Self::Float(float) if float < 0.0 => {
                let magnitude = Decimal::try_from(-float).ok()?.whole()?;
                0_i64.checked_sub_unsigned(magnitude)
            }
            other => i64::try_from(other.whole()?).ok(),
        }
    }

    /// Returns whether the number is finite and exceeds `u64`.
    fn exceeds_u64(self) -> bool {
        matches!(self, Self::Float(float) if float.is_finite() && float > 18_446_744_073_709_549_568.0)
    }

    /// Returns whether the number is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Negative(_) => true,
            Self::Float(float) => float < 0.0,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => whole.fmt(f),
            Self::Negative(whole) => whole.fmt(f),
            Self::Float(float) => float.fmt(f),
        }
    }
}

impl<'a> Value<'a> {
    /// Creates a string without a position.
    #[must_use]
    pub fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Node::Text(text.into()).into()
    }

    /// Returns the number, if the value is one.
    #[must_use]
    pub fn as_number(&self) -> Option<Number> {
        match self.node {
            Node::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the string.
    ///
    /// # Errors
    /// If the value is not a string.
    pub fn to_text(&self) -> Result<&str, Rule> {
        match &self.node {
            Node::Text(text) => Ok(text),
            _ => Err(Rule::NotText),
        }
    }

    /// Returns the boolean.
    ///
    /// # Errors
    /// If the value is not a boolean.
    pub fn to_bool(&self) -> Result<bool, Rule> {
        match self.node {
            Node::Bool(bool) => Ok(bool),
            _ => Err(Rule::NotBool),
        }
    }

    /// Returns the boolean, also from the strings `true` and `false`.
    pub(crate) fn to_switch(&self) -> Result<bool, Rule> {
        match &self.node {
            Node::Text(text) if text == "true" => Ok(true),
            Node::Text(text) if text == "false" => Ok(false),
            _ => self.to_bool(),
        }
    }

    /// Returns the items of a list.
    ///
    /// # Errors
    /// If the value is not a list.
    pub fn to_list(&self) -> Result<&[Self], Rule> {
        match &self.node {
            Node::List(items) => Ok(items),
            _ => Err(Rule::NotList),
        }
    }

    /// Returns an integer of at least `min`.
    ///
    /// # Errors
    /// If the value is not an integer, too small, or does not fit 64 bits.
    pub fn to_whole(&self, min: u64) -> Result<u64, Rule> {
        let number = self.as_number().ok_or(Rule::NotWhole { min })?;
        match number.whole() {
            Some(whole) if whole >= min => Ok(whole),
            None if number.exceeds_u64() => Err(Rule::ExceedsU64),
            _ => Err(Rule::NotWhole { min }),
        }
    }

    /// Returns an integer from `min` to `max`.
    ///
    /// # Errors
    /// If the value is not an integer or out of range.
    pub fn to_whole_between(&self, min: u64, max: u64) -> Result<u64, Rule> {
        let whole = self.to_whole(min).ok().filter(|whole| *whole <= max);
        whole.ok_or(Rule::NotBetween { min, max })
    }

    /// Returns an integer as `i64`. Larger numbers become `i64::MAX`, which every rule rejects.
    ///
    /// # Errors
    /// If the value is not an integer.
    pub fn to_signed(&self, min: u64) -> Result<i64, Rule> {
        match (self.as_number().and_then(Number::signed), self.to_whole(min)) {
            (Some(whole), _) => Ok(whole),
            (None, Ok(_) | Err(Rule::ExceedsU64)) => Ok(i64::MAX),
            (None, Err(rule)) => Err(rule),
        }
    }

    /// Returns a positive integer that fits 32 bits.
    ///
    /// # Errors
    /// If the value is not an integer or out of range.
    pub fn to_count(&self) -> Result<NonZeroU32, Rule> {
        let count = u32::try_from(self.to_whole(1)?).ok().and_then(NonZeroU32::new);
        count.ok_or(Rule::NotBetween { min: 1, max: u32::MAX.into() })
    }

    /// Returns the strings of a list, or of comma-separated text as in an environment variable.
    ///
    /// # Errors
    /// If the value is neither, or an item is not a string.
    pub fn to_texts(&self) -> Result<Vec<&str>, Rule> {
        match &self.node {
            Node::Text(text) => {
                Ok(text.split(',').map(str::trim).filter(|text| !text.is_empty()).collect())
            }
            _ => self.to_list()?.iter().map(Self::to_text).collect(),
        }
    }

    /// Returns owned strings of a list, as [`to_texts`](Self::to_texts) does.
    pub(crate) fn to_strings(&self) -> Result<Vec<String>, Rule> {
        Ok(self.to_texts()?.into_iter().map(ToOwned::to_owned).collect())
    }
}

impl<'a> From<Node<'a>> for Value<'a> {
    fn from(node: Node<'a>) -> Self {
        Self { node, position: Position::default() }
    }
}

impl fmt::Display for Value<'_> {
    /// Formats the value for an error, truncated.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_SHOWN_CHARS: usize = 60;
        match &self.node {
            Node::Null => f.write_str("null"),
            Node::Bool(bool) => bool.fmt(f),
            Node::Number(number) => number.fmt(f),
            Node::Text(text) => match text.char_indices().nth(MAX_SHOWN_CHARS) {
                Some((end, _)) => write!(f, "{:?}...", &text[..end]),
                None => write!(f, "{text:?}"),
            },
            Node::List(_) => f.write_str("[...]"),
            Node::Table(_) => f.write_str("{...}"),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Self::from)
    }
}

/// Accepts any value, so that our own rules report what is wrong with it.
struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, bool: bool) -> Result<Self::Value, E> {
        Ok(Node::Bool(bool))
    }

    fn visit_u64<E: Error>(self, whole: u64) -> Result<Self::Value, E> {
        Ok(Node::Number(Number::Whole(whole)))
    }

    fn visit_i64<E: Error>(self, whole: i64) -> Result<Self::Value, E> {
        let number = u64::try_from(whole).map_or(Number::Negative(whole), Number::Whole);
        Ok(Node::Number(number))
    }

    fn visit_f64<E: Error>(self, float: f64) -> Result<Self::Value, E> {
        Ok(Node::Number(Number::Float(float)))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Owned(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut table = Vec::new();
        // Deserializing keys as values borrows those without escapes.
        while let Some(key) = entries.next_key::<Value<'de>>()? {
            let Node::Text(key) = key.node else {
                return Err(A::Error::custom(
                    "keys must be \
                                                                               strings",
                ));
            };
            let position = Position::default();
            table.push(Entry { key, position, value: entries.next_value()? });
        }
        Ok(Node::Table(table))
    }
}
