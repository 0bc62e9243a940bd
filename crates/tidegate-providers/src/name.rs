//! Names: kept in lower case, so that one thing has one bucket however it is written, and hashed
//! where they must not be seen or may have any form.

use sha2::{Digest as _, Sha256};

/// 64 bits of a text's hash, which tell it apart from others and do not show it.
#[must_use]
pub fn short_hash(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half & 15)]);
    hash.iter().take(8).flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Makes the type of such a name.
macro_rules! lower_case_name {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// By its name; case and space around it do not matter.
            #[must_use]
            pub fn new(name: &str) -> Self {
                Self(name.trim().to_lowercase().into())
            }

            /// The name, in lower case.
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
