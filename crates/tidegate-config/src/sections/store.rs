//! `[store]`: where buckets are kept, and what happens when the store is full or unreachable.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;

use tidegate::{FailureRule, Overflow};

use crate::sections::keys::KnownKey;
use crate::sections::read_context::ReadContext;
use crate::values::durable_url::{DurableUrl, SECRET_VARIABLE};
use crate::values::fields::Fields;
use crate::values::redis_url::RedisUrl;
use crate::values::setting::Setting;
use crate::values::size::{ByteSize, SizeError};
use crate::values::value::{Node, Value};
use crate::values::value_kind::{COUNT, ValueKind};
use crate::violation::Rule;

const WHY_FIXED: &str = "the store holds all buckets and cannot be replaced while the program runs";

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "store.url",
        ValueKind::Text,
        |value| url(value).map(drop),
        "Where buckets are kept: \"memory:\" for this process, or the URL of a Redis or Valkey \
         server, or of a Worker with Durable Objects.",
    )
    .at_start(WHY_FIXED, |a, b| a.store.url.value != b.store.url.value),
    KnownKey::new(
        "store.shards",
        ValueKind::Whole(1, MAX_SHARDS),
        |value| shards(value).map(drop),
        "Number of Durable Objects among which a Worker divides the keys; the same as its \
         TIDEGATE_SHARDS. Not used with other stores.",
    )
    .at_start(WHY_FIXED, |a, b| a.store.shards.value != b.store.shards.value),
    KnownKey::new(
        "store.max_memory",
        ValueKind::Size,
        |value| memory(value).map(drop),
        "Memory limit of the in-process store.",
    )
    .at_start(WHY_FIXED, |a, b| a.store.max_memory.value != b.store.max_memory.value),
    KnownKey::new(
        "store.overflow",
        ValueKind::Words(OVERFLOW_RULES),
        |value| overflow(value).map(drop),
        "What happens to new keys when the in-process store is full of keys in debt: they share \
         buckets, or are denied.",
    )
    .at_start(WHY_FIXED, |a, b| a.store.overflow.value != b.store.overflow.value),
    KnownKey::new(
        "store.on_failure",
        ValueKind::Words(FAILURE_RULES),
        |value| on_failure(value).map(drop),
        "How to decide while a shared store is unreachable: allow (open), deny (closed), or by a \
         local share of each limit (local).",
    )
    .at_start(WHY_FIXED, |a, b| a.store.on_failure.value != b.store.on_failure.value),
    KnownKey::new(
        "store.expected_nodes",
        COUNT,
        |value| value.to_count().map(drop),
        "Number of nodes that share each limit, used for local shares until it is known from the \
         store.",
    )
    .at_start(WHY_FIXED, |a, b| a.store.expected_nodes.value != b.store.expected_nodes.value),
    KnownKey::new(
        "store.snapshot",
        ValueKind::Text,
        |value| snapshot(value).map(drop),
        "File in which the in-process store is saved across restarts, or \"none\".",
    )
    .at_start(WHY_FIXED, |a, b| a.store.snapshot.value != b.store.snapshot.value),
];

/// Settings of `[store]`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreConfig {
    /// URL of the store. Default: `memory:`.
    pub url: Setting<StoreUrl>,
    /// Number of shards of a Worker, from 1 to 65,536. Default: 128. Unused with other stores.
    pub shards: Setting<u64>,
    /// Memory limit of the in-process store. With a shared store, the limit of the local store used
    /// while the shared one is unreachable. Default: `64MiB`.
    pub max_memory: Setting<ByteSize>,
    /// What happens to new keys when the in-process store is full of keys in debt. Default:
    /// `shared`.
    pub overflow: Setting<Overflow>,
    /// Failure rule of limits that have none of their own and are not calendar quotas: how to
    /// decide while the shared store is unreachable. Default: `local`. Unused with the in-process
    /// store.
    pub on_failure: Setting<FailureRule>,
    /// Number of nodes that share a limit, until it is known from the store. Default: 1.
    pub expected_nodes: Setting<NonZeroU32>,
    /// Snapshot file of the in-process store, restored at start. Default: none.
    pub snapshot: Setting<Option<PathBuf>>,
}

/// A store URL.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// The in-process store.
    Memory,
    /// A Redis or Valkey server, which several processes can share.
    Redis(RedisUrl),
    /// A Worker with Durable Objects, which several processes can share.
    Durable(DurableUrl),
}

impl fmt::Display for StoreUrl {
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Redis(url) => url.fmt(f),
            Self::Durable(url) => url.fmt(f),
        }
    }
}

/// Minimum memory. With less, the in-process store does not start, and the gateway can track only
/// few keys.
const MIN_MEMORY: ByteSize = ByteSize::from_bytes(1 << 20);
/// Default and maximum number of shards of a Worker.
const SHARDS: u64 = 128;
const MAX_SHARDS: u64 = 65_536;
const OVERFLOW_RULES: &[&str] = &["shared", "deny"];
pub(crate) const FAILURE_RULES: &[&str] = &["open", "closed", "local"];

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: Setting::default(StoreUrl::Memory),
            shards: Setting::default(SHARDS),
            max_memory: Setting::default(ByteSize::from_bytes(64 << 20)),
            overflow: Setting::default(Overflow::Shared),
            on_failure: Setting::default(FailureRule::Local),
            expected_nodes: Setting::default(NonZeroU32::MIN),
            snapshot: Setting::default(None),
        }
    }
}

impl StoreConfig {
    pub(crate) fn read(fields: &mut Fields<'_, '_>, context: &ReadContext<'_>) -> Self {
        let mut store = Self::default();
        store.url.replace(fields.setting("url", url));
        if let StoreUrl::Durable(url) = &mut store.url.value {
            match context.environment.get(SECRET_VARIABLE).filter(|secret| !secret.is_empty()) {
                Some(secret) => url.set_secret(secret),
                None => fields.report("url", Rule::SecretNotSet(SECRET_VARIABLE)),
            }
        }
        store.shards.replace(fields.setting("shards", shards));
        store.max_memory.replace(fields.setting("max_memory", memory));
        store.overflow.replace(fields.setting("overflow", overflow));
        store.on_failure.replace(fields.setting("on_failure", on_failure));
        store.expected_nodes.replace(fields.setting("expected_nodes", Value::to_count));
        store.snapshot.replace(fields.setting("snapshot", snapshot));
        if store.snapshot.value.is_some() && store.url.value != StoreUrl::Memory {
            fields.report("snapshot", Rule::SnapshotNeedsMemoryStore);
        }
        store
    }
}

pub(crate) fn url(value: &Value<'_>) -> Result<StoreUrl, Rule> {
    const UNSUPPORTED: [&str; 2] = ["redis+cluster", "redis+sentinel"];
    let text = value.to_text().map_err(|_| Rule::StoreUrl)?;
    match text.split_once(':') {
        Some(("memory", "")) => Ok(StoreUrl::Memory),
        Some(("redis" | "rediss", _)) => Ok(StoreUrl::Redis(text.parse()?)),
        Some(("durable" | "durable+http", _)) => DurableUrl::parse(text).map(StoreUrl::Durable),
        Some((scheme, _)) if UNSUPPORTED.contains(&scheme) => {
            Err(Rule::UnsupportedStore { scheme: scheme.to_owned() })
        }
        _ => Err(Rule::StoreUrl),
    }
}

fn shards(value: &Value<'_>) -> Result<u64, Rule> {
    value.to_whole_between(1, MAX_SHARDS)
}

/// Parses a memory size of at least [`MIN_MEMORY`].
pub(crate) fn memory(value: &Value<'_>) -> Result<ByteSize, Rule> {
    let size = match &value.node {
        Node::Text(text) => text.parse()?,
        Node::Number(number) => number.whole().ok_or(SizeError::Malformed)?.try_into()?,
        _ => return Err(SizeError::Malformed.into()),
    };
    if size < MIN_MEMORY { Err(Rule::TooSmall { min: MIN_MEMORY }) } else { Ok(size) }
}

/// Parses the path of a file, or `none`. Rejects URLs, which may contain a password.
fn snapshot(value: &Value<'_>) -> Result<Option<PathBuf>, Rule> {
    let is_file = |path: &str| !path.is_empty() && !path.ends_with('/') && !path.contains("://");
    match value.to_text() {
        Ok("none") => Ok(None),
        Ok(path) if is_file(path) => Ok(Some(path.into())),
        _ => Err(Rule::SnapshotFile),
    }
}

fn overflow(value: &Value<'_>) -> Result<Overflow, Rule> {
    match value.to_text() {
        Ok("shared") => Ok(Overflow::Shared),
        Ok("deny") => Ok(Overflow::Deny),
        _ => Err(Rule::NotOneOf(OVERFLOW_RULES)),
    }
}

pub(crate) fn on_failure(value: &Value<'_>) -> Result<FailureRule, Rule> {
    match value.to_text() {
        Ok("open") => Ok(FailureRule::Open),
        Ok("closed") => Ok(FailureRule::Closed),
        Ok("local") => Ok(FailureRule::Local),
        _ => Err(Rule::NotOneOf(FAILURE_RULES)),
    }
}
