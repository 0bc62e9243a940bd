//! `[admin]`: who may read settings, and who may change them.
//!
//! The file contains hashes of tokens, never the tokens themselves.

use std::fmt;
use std::str::FromStr;

use crate::sections::keys::KnownKey;
use crate::values::fields::Fields;
use crate::values::setting::Setting;
use crate::values::value::Value;
use crate::values::value_kind::ValueKind;
use crate::violation::Rule;

const WHY_FIXED: &str = "a token that can change settings must not be able to grant access";

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "admin.read_tokens",
        ValueKind::Texts,
        |value| tokens(value).map(drop),
        "Hashes of tokens that can read settings and metrics.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "admin.write_tokens",
        ValueKind::Texts,
        |value| tokens(value).map(drop),
        "Hashes of tokens that can read and change settings.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "admin.allow_unauthenticated",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether the admin and gRPC APIs may listen beyond loopback without any token.",
    )
    .fixed(WHY_FIXED),
];

/// Access to the admin API and the gRPC API.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdminConfig {
    /// Tokens with read access. Default: none.
    pub read_tokens: Setting<Vec<TokenHash>>,
    /// Tokens with read and write access. Default: none.
    pub write_tokens: Setting<Vec<TokenHash>>,
    /// Whether to listen beyond loopback without tokens. Default: `false`.
    pub allow_unauthenticated: Setting<bool>,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            read_tokens: Setting::default(Vec::new()),
            write_tokens: Setting::default(Vec::new()),
            allow_unauthenticated: Setting::default(false),
        }
    }
}

impl AdminConfig {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut admin = Self::default();
        admin.read_tokens.replace(fields.setting("read_tokens", tokens));
        admin.write_tokens.replace(fields.setting("write_tokens", tokens));
        let open = fields.setting("allow_unauthenticated", Value::to_switch);
        admin.allow_unauthenticated.replace(open);
        admin
    }
}

fn tokens(value: &Value<'_>) -> Result<Vec<TokenHash>, Rule> {
    let texts = value.to_texts().map_err(|_| Rule::TokenHash)?;
    texts.into_iter().map(str::parse).collect()
}

/// SHA-256 hash of a token, written as `sha256:` and 64 hexadecimal digits. `Display` and `Debug`
/// show only its beginning.
///
/// ```
/// let text = format!("sha256:ab12{}", "0".repeat(60));
/// let hash: tidegate_config::TokenHash = text.parse()?;
/// assert_eq!(hash.to_string(), "sha256:ab12…");
/// assert_eq!(hash.bytes()[..2], [0xab, 0x12]);
/// assert!("a-token".parse::<tidegate_config::TokenHash>().is_err());
/// # Ok::<(), tidegate_config::Rule>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Returns the 32 bytes of the hash.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for TokenHash {
    type Err = Rule;

    fn from_str(text: &str) -> Result<Self, Rule> {
        let digits = text.strip_prefix("sha256:").unwrap_or_default();
        let hex = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut hash = [0; 32];
        for (index, byte) in hash.iter_mut().enumerate() {
            let pair = digits.get(2 * index..2 * index + 2).filter(|_| hex);
            let read = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
            *byte = read.ok_or(Rule::TokenHash)?;
        }
        Ok(Self(hash))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, ..] = self.0;
        write!(f, "sha256:{first:02x}{second:02x}…")
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHash({self})")
    }
}
