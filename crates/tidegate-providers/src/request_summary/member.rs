//! Kinds of members inside messages: which contain text, and which contain images.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::texts::Counter;

/// Content of a member, by its name.
#[derive(Clone, Copy)]
pub(super) enum Member {
    /// Text that the model reads.
    Text,
    /// Text or a file, depending on a type that may follow later.
    Data,
    /// Type of a part.
    Type,
    /// An image, or a file that is charged like one.
    Image,
    /// A list of images.
    Images,
    /// Nothing that counts as input.
    Other,
}

impl Member {
    fn of(name: &str) -> Self {
        match name {
            "data" => Self::Data,
            "type" => Self::Type,
            "inlineData" | "inline_data" | "fileData" | "file_data" => Self::Image,
            "images" => Self::Images,
            // An image given by URL is counted by the type next to it.
            "role" | "id" | "tool_call_id" | "tool_use_id" | "call_id" | "cache_control"
            | "image_url" | "input_audio" | "audio" | "b64_json" | "signature"
            | "thoughtSignature" | "encrypted_content" => Self::Other,
            _ => Self::Text,
        }
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Member;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Member, E> {
                Ok(Member::of(name))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// Visits a string or a list of strings and passes each to the counter. Skips anything else.
pub(super) struct Strings<'c> {
    pub(super) counter: &'c mut Counter,
    pub(super) on_string: fn(&mut Counter, &str),
}

impl<'de> DeserializeSeed<'de> for Strings<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Ignores scalar values.
macro_rules! nothing {
    ($($visit:ident($value:ty)),*) => {
        $(fn $visit<E>(self, _: $value) -> Result<(), E> {
            Ok(())
        })*
    };
}

impl<'de> Visitor<'de> for Strings<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    nothing!(visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64));

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        (self.on_string)(self.counter, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Strings { counter, on_string } = self;
        while list.next_element_seed(Strings { counter: &mut *counter, on_string })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}
