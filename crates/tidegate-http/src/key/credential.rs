//! Keys from credentials, which are always hashed.
//!
//! Credentials are not verified here; that is the task of an authentication layer. Placed in front
//! of such a layer, a limit counts the attempts with each credential separately; combine it with a
//! limit by client address.

use http::header::{AUTHORIZATION, HeaderName};

use super::plain::single_value;
use super::{KeySource, KeyText, Kind, RequestKey};
use crate::head::Head;
use crate::identity::header_name;

/// Key source: the hash of a credential.
#[derive(Clone, Debug)]
pub(super) struct Credential {
    field: HeaderName,
    scheme: Option<&'static str>,
}

/// Charges by the credential in `Authorization: Bearer ...`, as 128 bits of its SHA-256.
///
/// An invented token is a new key with a full bucket. Verify tokens before the layer that uses
/// this, or add a limit by [`client_ip`](super::client_ip).
pub const fn bearer() -> RequestKey {
    RequestKey(Kind::Credential(Credential { field: AUTHORIZATION, scheme: Some("bearer") }))
}

/// Charges by the credential in a header such as `x-api-key`, as 128 bits of its SHA-256.
///
/// ```
/// let by_api_key = tidegate_http::key::api_key("x-api-key");
/// ```
///
/// # Panics
/// Panics if `field` is not a valid header name. A parsed [`HeaderName`] never panics.
#[track_caller]
pub fn api_key(field: impl AsRef<str>) -> RequestKey {
    RequestKey(Kind::Credential(Credential { field: header_name(field.as_ref()), scheme: None }))
}

impl KeySource for Credential {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        let value = single_value(head.headers(), &self.field)?;
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
