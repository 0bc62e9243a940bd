//! `[gateway]`: options for calls to all providers.

use crate::sections::keys::KnownKey;
use crate::sections::store::memory;
use crate::values::fields::Fields;
use crate::values::setting::Setting;
use crate::values::size::ByteSize;
use crate::values::value::Value;
use crate::values::value_kind::ValueKind;

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "gateway.access_log",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether to log one line for each finished call to a provider.",
    ),
    KnownKey::new(
        "gateway.max_memory",
        ValueKind::Size,
        |value| memory(value).map(drop),
        "Memory limit for accounts, queues and learned limits, over all providers.",
    ),
];

/// Settings of `[gateway]`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GatewayConfig {
    /// Whether each finished call is logged. Default: `false`.
    pub access_log: Setting<bool>,
    /// Memory limit for accounts, queues and learned limits, over all providers. Default: `64MiB`.
    pub max_memory: Setting<ByteSize>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            access_log: Setting::default(false),
            max_memory: Setting::default(ByteSize::from_bytes(64 << 20)),
        }
    }
}

impl GatewayConfig {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut gateway = Self::default();
        gateway.access_log.replace(fields.setting("access_log", Value::to_switch));
        gateway.max_memory.replace(fields.setting("max_memory", memory));
        gateway
    }
}
