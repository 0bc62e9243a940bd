//! Keys from credentials, which are hashed before they go anywhere.
//!
//! Nothing is checked here: that a credential is valid is for an authentication layer to find
//! out. Placed before such a layer, a limit counts attempts with every credential apart; combine
//! it with one by client address.

use http::header::{AUTHORIZATION, HeaderName};

use super::plain::once;
use super::{KeySource, KeyText, Kind, RequestKey};
use crate::head::Head;
use crate::identity::header_name;

/// The hash of a credential.
#[derive(Clone, Debug)]
pub(super) struct Credential {
    field: HeaderName,
    scheme: Option<&'static str>,
}

/// Charges by the credential in `Authorization: Bearer ...`, under 128 bits of its SHA-256.
///
/// A token that somebody made up is a new key with a full bucket. Let it be verified before the
/// layer that uses this, or add a limit by [`client_ip`](super::client_ip).
pub const fn bearer() -> RequestKey {
    RequestKey(Kind::Credential(Credential { field: AUTHORIZATION, scheme: Some("bearer") }))
}

/// Charges by the credential that is the value of a field such as `x-api-key`, under 128 bits of
/// its SHA-256.
///
/// ```
/// let by_api_key = tidegate_http::key::api_key("x-api-key");
/// ```
///
/// # Panics
/// When the name is not a valid header name. A parsed [`HeaderName`] never panics.
#[track_caller]
pub fn api_key(field: impl AsRef<str>) -> RequestKey {
    RequestKey(Kind::Credential(Credential { field: header_name(field.as_ref()), scheme: None }))
}

impl KeySource for Credential {
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
