//! `[providers.NAME.fallback_models.TARGET]`: model names at a fallback provider.

use std::collections::BTreeMap;

use tidegate_providers::Dialect;

use super::fallback::KnownProviders;
use crate::sections::read_context::ReadContext;
use crate::values::fields::{Fields, Path};
use crate::values::value::Value;
use crate::violation::Rule;

/// Model names at fallback providers, by provider and requested model. The model `*` stands for all
/// others.
pub type FallbackModels = BTreeMap<String, BTreeMap<String, String>>;

/// Maximum length of a model name.
const MAX_NAME_LEN: usize = 256;

/// Parses a model name.
pub(crate) fn model_name(value: &Value<'_>) -> Result<String, Rule> {
    let text = value.to_text().map_err(|_| Rule::ModelName)?;
    let is_valid =
        !text.is_empty() && text.len() <= MAX_NAME_LEN && !text.contains(char::is_control);
    if is_valid { Ok(text.to_owned()) } else { Err(Rule::ModelName) }
}

/// Parses a model name that becomes part of a URL path.
fn model_name_in_path(value: &Value<'_>) -> Result<String, Rule> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let model = model_name(value)?;
    let is_valid = model.bytes().all(is_allowed) && model.bytes().any(|byte| byte != b'.');
    if is_valid { Ok(model) } else { Err(Rule::ModelInPath) }
}

pub(super) fn read(
    fields: &mut Fields<'_, '_>,
    known_providers: &KnownProviders<'_>,
    (own_name, dialect): (&str, Dialect),
    fallback: &[String],
    context: &ReadContext<'_>,
) -> FallbackModels {
    let mut targets = FallbackModels::new();
    let path = fields.path();
    let path = Path::Key(&path, "fallback_models");
    let Some(section) = fields.get("fallback_models") else { return targets };
    let Some(mut fields) = Fields::open_any(section, path, fields.violations()) else {
        return targets;
    };
    let parse = match dialect {
        Dialect::Gemini | Dialect::Azure => model_name_in_path,
        _ => model_name,
    };
    for entry in fields.entries() {
        if let Err(rule) = known_providers.check_other(&entry.key, own_name) {
            fields.report(&entry.key, rule);
        } else if context.is_check() && !fallback.iter().any(|name| *name == entry.key) {
            fields.report(&entry.key, Rule::NotInFallbackList);
        }
        let path = Path::Key(&path, &entry.key);
        let Some(mut fields) = Fields::open_any(&entry.value, path, fields.violations()) else {
            continue;
        };
        let names = fields.entries().iter();
        let names = names
            .filter_map(|entry| Some((entry.key.to_string(), fields.read(&entry.key, parse)?)));
        targets.insert(entry.key.to_string(), names.collect());
    }
    targets
}
