//! `[providers.NAME.all_keys]`: limits over all keys that callers bring.

use std::num::NonZeroU32;

use crate::sections::keys as table;
use crate::sections::modules::rate;
use crate::values::fields::{Fields, Path};
use crate::values::setting::Setting;

/// Limits over all keys that callers bring. An unset limit is a multiple of the limit of one key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AllKeysConfig {
    /// Requests per minute.
    pub requests_per_minute: Setting<Option<NonZeroU32>>,
    /// Tokens per minute.
    pub tokens_per_minute: Setting<Option<NonZeroU32>>,
}

impl Default for AllKeysConfig {
    fn default() -> Self {
        Self {
            requests_per_minute: Setting::default(None),
            tokens_per_minute: Setting::default(None),
        }
    }
}

impl AllKeysConfig {
    pub(super) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut config = Self::default();
        let path = fields.path();
        let path = Path::Key(&path, "all_keys");
        let Some(section) = fields.get("all_keys") else { return config };
        let known = table::below("providers.*.all_keys");
        let Some(mut fields) = Fields::open(section, path, &known, fields.violations()) else {
            return config;
        };
        let requests = fields.setting("requests_per_minute", |value| rate(value).map(Some));
        config.requests_per_minute.replace(requests);
        let tokens = fields.setting("tokens_per_minute", |value| rate(value).map(Some));
        config.tokens_per_minute.replace(tokens);
        config
    }
}
