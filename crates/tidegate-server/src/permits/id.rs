//! Permit ids: unguessable, with a format number.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Prefix of ids of this format.
const PREFIX: &str = "p1_";

/// The id of a permit. Knowing it is enough to release the permit, so it must be unguessable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PermitId([u8; 16]);

/// Why a text is not a permit id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PermitIdError {
    #[error("must be a permit id as returned by /v1/acquire")]
    Malformed,
    #[error("is a permit id in an unknown format; this version supports {PREFIX}")]
    Format,
}

impl PermitId {
    /// Creates an id of 128 random bits.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Parses the output of [`Display`](fmt::Display).
    pub(crate) fn parse(text: &str) -> Result<Self, PermitIdError> {
        let Some(encoded) = text.strip_prefix(PREFIX) else {
            return Err(if has_format(text) {
                PermitIdError::Format
            } else {
                PermitIdError::Malformed
            });
        };
        let mut bytes = [0; 16];
        match URL_SAFE_NO_PAD.decode_slice(encoded, &mut bytes) {
            Ok(16) => Ok(Self(bytes)),
            _ => Err(PermitIdError::Malformed),
        }
    }
}

/// Returns whether a text looks like an id of any format.
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
    /// The id is a credential and is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PermitId")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_ids_are_parsed() {
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
