//! Members of a request's texts: which have words in them, and which pictures.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::texts::Counter;

/// What a member of this name has in it.
#[derive(Clone, Copy)]
pub(super) enum Member {
    /// Texts that a model reads.
    Text,
    /// A text or a file, as its type says, which may come later.
    Data,
    /// What kind of part it is.
    Type,
    /// An image, or what is read as one.
    Image,
    /// A list of images.
    Images,
    /// Nothing that counts.
    Other,
}

impl Member {
    fn of(name: &str) -> Self {
        match name {
            "data" => Self::Data,
            "type" => Self::Type,
            "inlineData" | "inline_data" | "fileData" | "file_data" => Self::Image,
            "images" => Self::Images,
            // An image by its address has a type beside it, which is counted.
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

/// A text or a list of texts, each of which is shown to the counter; anything else is passed over.
pub(super) struct Few<'c> {
    pub(super) counter: &'c mut Counter,
    pub(super) see: fn(&mut Counter, &str),
}

impl<'de> DeserializeSeed<'de> for Few<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Values that count for nothing.
macro_rules! nothing {
    ($($visit:ident($value:ty)),*) => {
        $(fn $visit<E>(self, _: $value) -> Result<(), E> {
            Ok(())
        })*
    };
}

impl<'de> Visitor<'de> for Few<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    nothing!(visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64));

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        (self.see)(self.counter, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Few { counter, see } = self;
        while list.next_element_seed(Few { counter: &mut *counter, see })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}
