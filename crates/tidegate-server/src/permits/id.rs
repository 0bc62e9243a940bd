//! Ids of permits: unguessable, and with a format number in them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What an id of this format begins with.
const PREFIX: &str = "p1_";

/// The id of a permit: whoever knows it may end it, so nobody can guess it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PermitId([u8; 16]);

/// Why a text is no id of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PermitIdError {
    #[error("is not the id of a permit, as /v1/acquire answers it")]
    Malformed,
    #[error("is the id of a permit in a format that this version does not know; it knows {PREFIX}")]
    Format,
}

impl PermitId {
    /// A new id of 128 random bits.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Reads what [`Display`](fmt::Display) wrote.
    pub(crate) fn parse(text: &str) -> Result<Self, PermitIdError> {
        let Some(bits) = text.strip_prefix(PREFIX) else {
            return Err(if has_format(text) {
                PermitIdError::Format
            } else {
                PermitIdError::Malformed
            });
        };
        let mut bytes = [0; 16];
        match URL_SAFE_NO_PAD.decode_slice(bits, &mut bytes) {
            Ok(16) => Ok(Self(bytes)),
            _ => Err(PermitIdError::Malformed),
        }
    }
}

/// Whether a text looks like an id of some format.
fn has_format(text: &str) -> bool {
    let number = text.strip_prefix('p').and_then(|text| text.split_once('_')).map(|(it, _)| it);
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PermitId {
    /// An id is a key to its permit: it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PermitId")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written_and_nothing_else_is() {
        let id = PermitId::random().unwrap();
        let text = id.to_string();
        assert_eq!((PermitId::parse(&text), text.len()), (Ok(id), 25));
        assert_ne!(PermitId::random().unwrap(), id);
        let longer = format!("{text}A");
        for text in ["", "p1_", "p_", "1", "permit", &text[..24], &text[3..], &longer, "p1_é"] {
            assert_eq!(PermitId::parse(text), Err(PermitIdError::Malformed), "{text}");
        }
        assert_eq!(PermitId::parse("p2_AAAA"), Err(PermitIdError::Format));
    }
}
