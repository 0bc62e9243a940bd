//! Numbers with bounds: an invalid number is an error if it was set for this program, and replaced
//! with a warning otherwise.

use std::borrow::Cow;
use std::num::NonZeroU32;

use tidegate_llm::settings::{ConcurrencyWarning, resolve_concurrency};
use tidegate_providers::Provider;

use super::SHIPPED;
use super::read::{MAX_RETRIES, retries as strict_retries};
use crate::sections::read_context::ReadContext;
use crate::values::fields::Fields;
use crate::values::setting::{Setting, Source};
use crate::values::value::{Node, Value};
use crate::warning::Warning;

/// Reads `max_concurrent_requests`.
pub(super) fn concurrency(
    provider_label: &str,
    dialect_provider: &Provider,
    fields: &mut Fields<'_, '_>,
    context: &mut ReadContext<'_>,
) -> Option<Setting<NonZeroU32>> {
    const KEY: &str = "max_concurrent_requests";
    let value = fields.get(KEY);
    if value.is_some_and(|value| !context.is_lenient(value.position)) {
        return fields.setting(KEY, Value::to_count);
    }
    let configured = value.and_then(configured);
    let (limit, warning) =
        resolve_concurrency(dialect_provider, configured.as_deref(), context.cap);
    // Do not warn about providers that exist by default and are not configured.
    let quiet = value.is_none() && SHIPPED.contains(&provider_label);
    if let Some(warning) =
        warning.filter(|warning| !quiet || *warning != ConcurrencyWarning::NotConfigured)
    {
        let provider = provider_label.to_owned();
        context.warnings.push(Warning::Concurrency { provider, warning });
    }
    let source = value.map_or(Source::Default, |value| value.position.source);
    Some(Setting { value: limit, source })
}

/// Reads `max_retries`.
pub(super) fn retries(
    provider_label: &str,
    default: u32,
    fields: &mut Fields<'_, '_>,
    context: &mut ReadContext<'_>,
) -> Option<Setting<u32>> {
    const KEY: &str = "max_retries";
    let value = fields.get(KEY)?;
    if !context.is_lenient(value.position) {
        return fields.setting(KEY, strict_retries);
    }
    let number = match &value.node {
        Node::Text(text) => text.trim().parse().ok().filter(|number| *number <= MAX_RETRIES),
        _ => strict_retries(value).ok(),
    };
    if number.is_none() {
        let provider = provider_label.to_owned();
        context.warnings.push(Warning::InvalidRetries {
            provider,
            most: MAX_RETRIES,
            used: default,
        });
    }
    Some(Setting { value: number.unwrap_or(default), source: value.position.source })
}

/// Returns a number or text as text, and the empty string for other values; `None` for null.
fn configured<'v>(value: &'v Value<'_>) -> Option<Cow<'v, str>> {
    Some(match &value.node {
        Node::Null => return None,
        Node::Text(text) => Cow::Borrowed(text),
        _ => value.to_signed(1).map_or(Cow::Borrowed(""), |number| number.to_string().into()),
    })
}
