//! Keys from credentials, which are hashed before they go anywhere.
//!
//! Nothing is checked here: that a credential is valid is for an authentication layer to find
//! out. Placed before such a layer, a limit counts attempts with every credential apart; combine
//! it with one by client address.

use http::header::{AUTHORIZATION, HeaderName};

use super::plain::once;
use super::{KeySource, KeyText};
use crate::head::Head;

/// The hash of a credential. Made by [`bearer`] and [`api_key`].
#[derive(Clone, Debug)]
pub struct ApiKey {
    field: HeaderName,
    scheme: Option<&'static str>,
}

/// Charges by the credential in `Authorization: Bearer ...`, under 128 bits of its SHA-256.
///
/// A token that somebody made up is a new key with a full bucket. Let it be verified before the
/// layer that uses this, or add a limit by [`client_ip`](super::client_ip).
#[must_use]
pub const fn bearer() -> ApiKey {
    ApiKey { field: AUTHORIZATION, scheme: Some("bearer") }
}

/// Charges by the credential that is the value of a field such as `x-api-key`, under 128 bits of
/// its SHA-256.
#[must_use]
pub const fn api_key(field: HeaderName) -> ApiKey {
    ApiKey { field, scheme: None }
}

impl KeySource for ApiKey {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        let value = once(head.headers(), &self.field)?;
        let secret = match self.scheme {
            None => value,
            Some(scheme) => {
                let (word, rest) = value.split_at_checked(scheme.len())?;
                let blank = rest.first() == Some(&b' ');
                if !word.eq_ignore_ascii_case(scheme.as_bytes()) || !blank {
                    return None;
                }
                rest.trim_ascii()
            }
        };
        if secret.is_empty() {
            return None;
        }
        key.push_hash_of(secret);
        Some(())
    }
}
