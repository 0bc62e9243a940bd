//! Removes passwords and hashes from values before they are shown to readers of settings.

use serde_json::Value as Json;

use crate::sections::admin::TokenHash;
use crate::sections::database;
use crate::sections::providers;
use crate::sections::proxy;
use crate::sections::store;
use crate::values::secret::{looks_like_key, without_credentials};
use crate::values::value::Value;

/// Placeholder for a value that may be a secret.
const REDACTED: &str = "...";

/// Returns a value as JSON without secrets.
pub(crate) fn redacted(names: &[&str], value: &Value<'_>) -> Json {
    let or_redacted = |text: Option<String>| text.unwrap_or_else(|| REDACTED.to_owned()).into();
    match names {
        ["store", "url"] => or_redacted(store::url(value).ok().map(|url| url.to_string())),
        ["database", "url"] => or_redacted(database::url(value).ok().map(|url| url.to_string())),
        ["proxy", "https" | "http"] => {
            let proxy = proxy::proxy(value).ok();
            or_redacted(proxy.map(|it| it.map_or("none".to_owned(), |it| it.to_string())))
        }
        ["providers", _, "api_key_env"] => or_redacted(providers::variable_name(value).ok()),
        ["admin", "read_tokens" | "write_tokens"] => {
            let hash =
                |text: &str| or_redacted(text.parse().ok().map(|it: TokenHash| it.to_string()));
            value.to_texts().map_or(REDACTED.into(), |texts| texts.into_iter().map(hash).collect())
        }
        _ => mask_secrets(value.json()),
    }
}

fn mask_secrets(json: Json) -> Json {
    match json {
        Json::String(text) if looks_like_key(&text) => REDACTED.into(),
        Json::String(text) => without_credentials(&text).into_owned().into(),
        Json::Array(items) => items.into_iter().map(mask_secrets).collect(),
        Json::Object(fields) => {
            fields.into_iter().map(|(key, it)| (key, mask_secrets(it))).collect()
        }
        other => other,
    }
}

/// Maximum number of characters of a text in a log.
const MAX_LOGGED_CHARS: usize = 64;

/// Truncates the texts of a redacted JSON value for a log.
pub(crate) fn truncate(json: &str) -> String {
    if json.len() <= MAX_LOGGED_CHARS {
        return json.to_owned();
    }
    let Ok(value) = serde_json::from_str(json) else { return truncate_text(json) };
    truncate_texts(value).to_string()
}

fn truncate_texts(json: Json) -> Json {
    match json {
        Json::String(text) => truncate_text(&text).into(),
        Json::Array(items) => items.into_iter().map(truncate_texts).collect(),
        other => other,
    }
}

fn truncate_text(text: &str) -> String {
    let mut kept: String = text.chars().take(MAX_LOGGED_CHARS).collect();
    if kept.len() < text.len() {
        kept.push('…');
    }
    kept
}
