//! Names in lower case, so that every spelling of a name shares one bucket, and hashes for names
//! that must stay secret.

use sha2::{Digest as _, Sha256};

/// Returns 64 bits of the SHA-256 hash of a text in hexadecimal: an identifier that does not reveal
/// the text.
#[must_use]
pub fn short_hash(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half & 15)]);
    hash.iter().take(8).flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Defines a type for a name in lower case.
macro_rules! lower_case_name {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Creates a name. Case and surrounding whitespace are ignored.
            #[must_use]
            pub fn new(name: &str) -> Self {
                Self(name.trim().to_lowercase().into())
            }

            /// Returns the name in lower case.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self::new(name)
            }
        }
    };
}

pub(crate) use lower_case_name;
