//! `[api]`: options of the HTTP API.

use crate::sections::admission::percent;
use crate::sections::keys::KnownKey;
use crate::values::fields::Fields;
use crate::values::setting::Setting;
use crate::values::value_kind::ValueKind;

pub(crate) const KEYS: &[KnownKey] = &[KnownKey::new(
    "api.jitter_percent",
    ValueKind::Whole(0, 100),
    |value| percent(value).map(drop),
    "Maximum random extension of the retry hints of denied takes and reserves, in percent.",
)];

/// Settings of `[api]`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ApiConfig {
    /// Maximum random extension of retry hints, in percent, so that callers denied together do not
    /// retry together. Default: 0, hints are exact.
    pub jitter_percent: Setting<u8>,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self { jitter_percent: Setting::default(0) }
    }
}

impl ApiConfig {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut api = Self::default();
        api.jitter_percent.replace(fields.setting("jitter_percent", percent));
        api
    }
}
