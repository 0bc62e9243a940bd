//! Creates tokens and their digests.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use tidegate_config::TokenHash;

/// Prefix of tokens, by which people and secret scanners recognize them.
const PREFIX: &str = "tidegate_";

/// A newly created token.
///
/// ```
/// let token = tidegate_server::create_token()?;
/// assert!(token.token.starts_with("tidegate_"));
/// assert_eq!(token.digest, tidegate_server::TokenDigest::of(&token.token));
/// assert!(!format!("{token:?}").contains(&token.token));
/// # Ok::<(), tidegate_server::CreateTokenError>(())
/// ```
#[non_exhaustive]
pub struct NewToken {
    /// The token, for its user. It cannot be recovered from the digest.
    pub token: String,
    /// The digest, for the configuration.
    pub digest: TokenDigest,
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// Why a token could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateTokenError {
    /// The operating system's random number generator failed.
    #[error("the operating system's random number generator failed: {0}")]
    NoRandomness(getrandom::Error),
}

/// Creates a random token.
///
/// # Errors
/// If the operating system's random number generator fails.
pub fn create_token() -> Result<NewToken, CreateTokenError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(CreateTokenError::NoRandomness)?;
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let digest = TokenDigest::of(&token);
    Ok(NewToken { token, digest })
}

/// The SHA-256 of a token, written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Computes the digest of a token.
    #[must_use]
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Returns the first eight hexadecimal digits, enough to distinguish tokens in an audit log.
    pub(super) fn short_hex(self) -> String {
        self.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn constant_time_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl From<&TokenHash> for TokenDigest {
    fn from(hash: &TokenHash) -> Self {
        Self(*hash.bytes())
    }
}

impl PartialEq for TokenDigest {
    fn eq(&self, other: &Self) -> bool {
        self.constant_time_eq(other).into()
    }
}

impl Eq for TokenDigest {}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenDigest({}..)", self.short_hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_round_trips_through_its_text() {
        let digest = TokenDigest::of("abc");
        assert_eq!(
            digest.to_string(),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let read: TokenHash = digest.to_string().parse().unwrap();
        assert_eq!(TokenDigest::from(&read), digest);
        assert_eq!(format!("{digest:?}"), "TokenDigest(ba7816bf..)");
    }
}
