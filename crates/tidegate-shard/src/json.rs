//! Reading JSON into messages, by hand.
//!
//! Derived deserializers are compiled once per type and would triple the size of the wasm module.
//! These functions share one parser, and their errors name the field.

use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Value};

/// A value that is read from JSON.
pub(crate) trait FromJson: Sized {
    /// Reads the value; the error says what is wrong, without the place.
    fn from_json(value: Value) -> Result<Self, String>;
}

/// Parses a body.
pub(crate) fn parse<T: FromJson>(body: &[u8]) -> Result<T, String> {
    let value: Value =
        serde_json::from_slice(body).map_err(|error| alloc::format!("invalid JSON: {error}"))?;
    T::from_json(value)
}

/// The fields of an object, taken one by one.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads an object.
    pub(crate) fn new(value: Value) -> Result<Self, String> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err("must be an object".into()),
        }
    }

    /// Takes a field; `None` if it is absent or null.
    pub(crate) fn optional<T: FromJson>(&mut self, name: &str) -> Result<Option<T>, String> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::from_json(value).map(Some).map_err(|reason| at(name, &reason)),
        }
    }

    /// Takes a field that must be there.
    pub(crate) fn required<T: FromJson>(&mut self, name: &str) -> Result<T, String> {
        self.optional(name)?.ok_or_else(|| at(name, "is required"))
    }

    /// Checks that all fields were taken.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(at(&name, "is not a known field")),
        }
    }
}

/// Reads an enum: the name of a variant, or an object with the variant as its only field.
pub(crate) fn variant(value: Value) -> Result<(String, Value), String> {
    match value {
        Value::String(name) => Ok((name, Value::Null)),
        Value::Object(fields) if fields.len() == 1 => {
            fields.into_iter().next().ok_or_else(|| "must have one field".into())
        }
        _ => Err("must have one field".into()),
    }
}

/// The error for an unknown variant.
pub(crate) fn unknown<T>(name: &str) -> Result<T, String> {
    Err(at(name, "is not known"))
}

fn at(name: &str, reason: &str) -> String {
    let mut text = String::from(name);
    if !reason.starts_with(['.', '[']) {
        text.push(' ');
    }
    text.push_str(reason);
    text
}

impl FromJson for Value {
    fn from_json(value: Value) -> Result<Self, String> {
        Ok(value)
    }
}

impl FromJson for String {
    fn from_json(value: Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Ok(text),
            _ => Err("must be a text".into()),
        }
    }
}

impl FromJson for bool {
    fn from_json(value: Value) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| "must be true or false".into())
    }
}

impl FromJson for u64 {
    fn from_json(value: Value) -> Result<Self, String> {
        value.as_u64().ok_or_else(|| "must be an integer >= 0".into())
    }
}

impl FromJson for i64 {
    fn from_json(value: Value) -> Result<Self, String> {
        value.as_i64().ok_or_else(|| "must be an integer".into())
    }
}

impl FromJson for f64 {
    fn from_json(value: Value) -> Result<Self, String> {
        value.as_f64().ok_or_else(|| "must be a number".into())
    }
}

macro_rules! small_integer {
    ($($type:ty)*) => {$(
        impl FromJson for $type {
            fn from_json(value: Value) -> Result<Self, String> {
                let number = u64::from_json(value)?;
                Self::try_from(number).map_err(|_| "is too large".into())
            }
        }
    )*};
}

small_integer!(u8 u16 u32 usize);

impl<T: FromJson> FromJson for Vec<T> {
    fn from_json(value: Value) -> Result<Self, String> {
        let Value::Array(items) = value else { return Err("must be a list".into()) };
        let item = |(index, item): (usize, Value)| {
            T::from_json(item).map_err(|reason| alloc::format!("[{index}]: {reason}"))
        };
        items.into_iter().enumerate().map(item).collect()
    }
}

impl<T: FromJson, U: FromJson> FromJson for (T, U) {
    fn from_json(value: Value) -> Result<Self, String> {
        match <[Value; 2]>::try_from(Vec::from_json(value)?) {
            Ok([first, second]) => Ok((T::from_json(first)?, U::from_json(second)?)),
            Err(_) => Err("must have two items".into()),
        }
    }
}

impl FromJson for [u32; 4] {
    fn from_json(value: Value) -> Result<Self, String> {
        Self::try_from(Vec::from_json(value)?).map_err(|_| "must have four items".into())
    }
}
