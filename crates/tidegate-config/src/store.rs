//! `[store]`: where buckets live and what happens when they cannot.

use std::num::NonZeroU32;

use tidegate::{FailureRule, Overflow};

use crate::fault::Rule;
use crate::fields::Fields;
use crate::redis_url::RedisUrl;
use crate::setting::{Setting, Source};
use crate::size::{ByteSize, SizeError};
use crate::value::{Node, Value};

pub(crate) const STORE_KEYS: &[&str] =
    &["url", "max_memory", "overflow", "on_failure", "expected_nodes"];

/// The store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StorePlan {
    /// Which one. Default `memory:`.
    pub url: Setting<StoreUrl>,
    /// The bound of the in-process store, or of what this process decides by itself while another
    /// one does not answer. Default `64MiB`.
    pub max_memory: Setting<ByteSize>,
    /// What happens to new keys when it is full. Default `shared`.
    pub overflow: Setting<Overflow>,
    /// What is decided when the store does not answer, about limits that have no rule of their
    /// own and are no calendar quotas. Default `local`; the in-process store always answers.
    pub on_failure: Setting<FailureRule>,
    /// Among how many nodes a limit is divided before they have met in the store. Default 1.
    pub expected_nodes: Setting<NonZeroU32>,
}

/// Which store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// The one in this process.
    Memory,
    /// A Redis or Valkey server that several processes share.
    Redis(RedisUrl),
}

/// Below this the in-process store refuses to start.
const LEAST_MEMORY: ByteSize = ByteSize::from_bytes(1 << 20);
const OVERFLOWS: &[&str] = &["shared", "deny"];
const FAILURES: &[&str] = &["open", "closed", "local"];

impl Default for StorePlan {
    fn default() -> Self {
        Self {
            url: Setting::default(StoreUrl::Memory),
            max_memory: Setting::default(ByteSize::from_bytes(64 << 20)),
            overflow: Setting::default(Overflow::Shared),
            on_failure: Setting::default(FailureRule::Local),
            expected_nodes: Setting::default(NonZeroU32::MIN),
        }
    }
}

impl StorePlan {
    pub(crate) fn layer(&mut self, fields: &mut Fields<'_, '_>, source: Source) {
        self.url.replace(fields.read("url", url), source);
        self.max_memory.replace(fields.read("max_memory", memory), source);
        self.overflow.replace(fields.read("overflow", overflow), source);
        self.on_failure.replace(fields.read("on_failure", on_failure), source);
        self.expected_nodes.replace(fields.read("expected_nodes", nodes), source);
    }
}

fn url(value: &Value<'_>) -> Result<StoreUrl, Rule> {
    const LATER: [&str; 2] = ["redis+cluster", "redis+sentinel"];
    let text = value.to_text().map_err(|_| Rule::StoreUrl)?;
    match text.split_once(':') {
        Some(("memory", "")) => Ok(StoreUrl::Memory),
        Some(("redis" | "rediss", _)) => Ok(StoreUrl::Redis(text.parse()?)),
        Some((scheme, _)) if LATER.contains(&scheme) => {
            Err(Rule::StoreNotServed { scheme: scheme.to_owned() })
        }
        _ => Err(Rule::StoreUrl),
    }
}

/// A size, large enough for the in-process store to work at all.
fn memory(value: &Value<'_>) -> Result<ByteSize, Rule> {
    let size = match &value.node {
        Node::Text(text) => text.parse()?,
        Node::Number(number) => number.whole().ok_or(SizeError::Malformed)?.try_into()?,
        _ => return Err(SizeError::Malformed.into()),
    };
    if size < LEAST_MEMORY { Err(Rule::TooLittle { least: LEAST_MEMORY }) } else { Ok(size) }
}

fn overflow(value: &Value<'_>) -> Result<Overflow, Rule> {
    match value.to_text() {
        Ok("shared") => Ok(Overflow::Shared),
        Ok("deny") => Ok(Overflow::Deny),
        _ => Err(Rule::NotOneOf(OVERFLOWS)),
    }
}

pub(crate) fn on_failure(value: &Value<'_>) -> Result<FailureRule, Rule> {
    match value.to_text() {
        Ok("open") => Ok(FailureRule::Open),
        Ok("closed") => Ok(FailureRule::Closed),
        Ok("local") => Ok(FailureRule::Local),
        _ => Err(Rule::NotOneOf(FAILURES)),
    }
}

fn nodes(value: &Value<'_>) -> Result<NonZeroU32, Rule> {
    let nodes = value.to_whole(1)?;
    let nodes = u32::try_from(nodes).ok().and_then(NonZeroU32::new);
    nodes.ok_or(Rule::NotWhole { least: 1 })
}
