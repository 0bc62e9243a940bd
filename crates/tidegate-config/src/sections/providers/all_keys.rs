//! `[providers.NAME.all_keys]`: limits over all keys that callers bring.

use std::num::NonZeroU32;

use crate::sections::keys as table;
use crate::sections::modules::rate;
use crate::values::fields::{Fields, Path};
use crate::values::setting::Setting;

/// Limits over all keys that callers bring. An unset limit is a multiple of the limit of one key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AllKeysPlan {
    /// Requests per minute.
    pub requests_per_minute: Setting<Option<NonZeroU32>>,
    /// Tokens per minute.
    pub tokens_per_minute: Setting<Option<NonZeroU32>>,
}

impl Default for AllKeysPlan {
    fn default() -> Self {
        Self {
            requests_per_minute: Setting::default(None),
            tokens_per_minute: Setting::default(None),
        }
    }
}

impl AllKeysPlan {
    pub(super) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut plan = Self::default();
        let path = fields.path();
        let path = Path::Key(&path, "all_keys");
        let Some(section) = fields.get("all_keys") else { return plan };
        let known = table::below("providers.*.all_keys");
        let Some(mut fields) = Fields::open(section, path, &known, fields.faults()) else {
            return plan;
        };
        let requests = fields.setting("requests_per_minute", |value| rate(value).map(Some));
        plan.requests_per_minute.replace(requests);
        let tokens = fields.setting("tokens_per_minute", |value| rate(value).map(Some));
        plan.tokens_per_minute.replace(tokens);
        plan
    }
}
