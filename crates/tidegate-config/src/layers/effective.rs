//! Effective settings: each value with its source and the values it shadows.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use crate::config::Config;
use crate::layers::Layers;
use crate::layers::merge::Shadow;
use crate::layers::tree::leaves;
use crate::sections::keys;
use crate::sections::read_context::ReadContext;
use crate::sections::redact::{redacted, truncate};
use crate::values::key_path;
use crate::values::setting::{Setting, Source};

/// An effective setting. Values are JSON text without passwords and hashes.
///
/// Serializes to the format of the admin API: values as JSON, without `place`, because readers of
/// settings need not know file paths of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EffectiveSetting {
    /// Path of the key.
    pub key: String,
    /// The value in use.
    #[serde(serialize_with = "as_json")]
    pub value: String,
    /// The layer that the value comes from.
    pub source: Source,
    /// Shadowed values of lower layers, the lowest first.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_shadows")]
    pub shadowed: Vec<(Source, String)>,
    /// The configured value, if bounds replaced it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_optional_json")]
    pub configured: Option<String>,
    /// A remark about the value, for example that auto-tuning starts there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Where the value was set, such as `tidegate.toml:3:8` or the name of a variable.
    #[serde(skip)]
    pub place: Option<String>,
}

/// A setting that differs between two configurations, in its value, its configured value or its
/// source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SettingChange {
    /// Path of the key.
    pub key: String,
    /// The previous value, as JSON; `None` if there was none.
    #[serde(serialize_with = "as_optional_json")]
    pub old: Option<String>,
    /// The new value, as JSON; `None` if there is none.
    #[serde(serialize_with = "as_optional_json")]
    pub new: Option<String>,
    /// The configured value, if it is not the effective one, because bounds replaced it or a higher
    /// layer shadows it.
    #[serde(
        rename = "asked",
        skip_serializing_if = "Option::is_none",
        serialize_with = "as_optional_json"
    )]
    pub configured: Option<String>,
    /// The layer that the new value comes from; `None` if there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

impl Layers {
    /// Returns every effective setting, in the order of the file. Invalid values are included as
    /// written.
    #[must_use]
    pub fn effective(&self) -> Vec<EffectiveSetting> {
        let merged = self.merge().merged;
        let mut context = ReadContext::new(&self.environment);
        let config = Config::read(&merged.tree, &mut context, &mut Vec::new());
        let mut shadowed_by_key: BTreeMap<Vec<&str>, Vec<(Source, String)>> = BTreeMap::new();
        for shadow in &merged.shadows {
            let by = shadow.by.iter().map(String::as_str).collect();
            shadowed_by_key.entry(by).or_default().push(shadowed_value(shadow));
        }
        let mut settings = RankedSettings::new();
        for (names, value) in leaves(&merged.tree) {
            let default = value.position.source == Source::Default;
            let shadowed = shadowed_by_key.remove(&names).unwrap_or_default();
            let effective = EffectiveSetting {
                key: key_path::join(&names),
                value: redacted(&names, value).to_string(),
                source: value.position.source,
                configured: None,
                shadowed,
                note: None,
                place: (!default).then(|| self.origin(value.position).to_string()),
            };
            settings.insert(rank(&names), effective);
        }
        apply_resolved_values(&config, &mut settings);
        settings.into_values().collect()
    }
}

impl EffectiveSetting {
    /// Returns whether this setting is the key `part` or belongs to the section `part`. The empty
    /// section contains everything.
    ///
    /// ```
    /// let effective = tidegate_config::Loader::default().text_layers("none", "").effective();
    /// let rate = effective.iter().find(|it| it.key == "limits.client.rate").unwrap();
    /// assert!(rate.is_in("limits.client") && rate.is_in("limits.") && rate.is_in(""));
    /// assert!(!rate.is_in("limits.cl"));
    /// ```
    #[must_use]
    pub fn is_in(&self, part: &str) -> bool {
        let part = part.trim_end_matches('.');
        let rest = self.key.strip_prefix(part);
        rest.is_some_and(|rest| part.is_empty() || rest.is_empty() || rest.starts_with('.'))
    }
}

/// Compares two configurations key by key.
///
/// A setting also differs if its effective value is the same but its configured value or its source
/// changed. Long texts are truncated, so that the result can be logged.
#[must_use]
pub fn diff(old: &[EffectiveSetting], new: &[EffectiveSetting]) -> Vec<SettingChange> {
    let mut before: BTreeMap<&str, &EffectiveSetting> =
        old.iter().map(|it| (it.key.as_str(), it)).collect();
    let changes = new.iter().filter_map(|it| compare(before.remove(it.key.as_str()), it));
    let mut changes: Vec<_> = changes.collect();
    let removed = before.into_values();
    changes.extend(removed.map(|it| SettingChange {
        key: it.key.clone(),
        old: Some(truncate(&it.value)),
        new: None,
        configured: None,
        source: None,
    }));
    changes
}

/// Compares one setting with its previous state. Returns `None` if nothing changed.
fn compare(before: Option<&EffectiveSetting>, after: &EffectiveSetting) -> Option<SettingChange> {
    let state = |it: &EffectiveSetting| (it.value.clone(), it.source, it.configured.clone());
    let same = before.filter(|before| state(before) == state(after));
    if same.is_some_and(|before| before.shadowed == after.shadowed) {
        return None;
    }
    // The change may be to a value that a higher layer shadows.
    let newly_shadowed = same.and_then(|before| {
        let mut shadowed = after.shadowed.iter().rev();
        shadowed.find(|shadow| !before.shadowed.contains(shadow)).map(|(_, value)| value)
    });
    Some(SettingChange {
        key: after.key.clone(),
        old: before.map(|before| truncate(&before.value)),
        new: Some(truncate(&after.value)),
        configured: after
            .configured
            .as_ref()
            .or(newly_shadowed)
            .map(|configured| truncate(configured)),
        source: Some(after.source),
    })
}

/// Sort key for the order of the file: section, then names chosen by the user, then key.
type Rank = (usize, Vec<String>, usize, String);
type RankedSettings = BTreeMap<Rank, EffectiveSetting>;

fn rank(names: &[&str]) -> Rank {
    let section = keys::below("").iter().position(|section| names.first() == Some(section));
    let parts = keys::find(names).map_or("", keys::KnownKey::path).split('.');
    let user_names = parts.zip(names).filter(|(part, _)| *part == "*");
    let user_names = user_names.map(|(_, name)| (*name).to_owned()).collect();
    let key = keys::rank(names);
    (section.unwrap_or(usize::MAX), user_names, key, key_path::join(names))
}

fn shadowed_value(shadow: &Shadow<'_>) -> (Source, String) {
    let names: Vec<&str> = shadow.names.iter().map(String::as_str).collect();
    let value = redacted(&names, &shadow.value);
    let text = match names.last() {
        // If a key of another name shadows this one, show the name too.
        Some(key) if shadow.names != shadow.by => json!({ *key: value }).to_string(),
        _ => value.to_string(),
    };
    (shadow.value.position.source, text)
}

/// Replaces configured values by those in use after bounds and provider defaults.
fn apply_resolved_values(config: &Config, settings: &mut RankedSettings) {
    let state_dir = config.state_dir.value.to_string_lossy().into_owned();
    set_resolved(settings, &["state_dir"], &state_dir.into(), config.state_dir.source);
    for (name, provider) in &config.providers {
        let Setting { value, source } = provider.max_concurrent_requests;
        let concurrency = ["providers", name, "max_concurrent_requests"];
        set_resolved(settings, &concurrency, &value.get().into(), source);
        let auto_tune = &provider.auto_tune;
        let Setting { value: ceiling, source } = auto_tune.ceiling;
        set_resolved(
            settings,
            &["providers", name, "auto_tune", "ceiling"],
            &ceiling.get().into(),
            source,
        );
        for limit in provider.shown_tier_limits() {
            let names = ["providers", name, "models", &limit.model, limit.key];
            set_resolved(settings, &names, &limit.value, provider.tier.source);
            if let Some(setting) = settings.get_mut(&rank(&names)) {
                setting.note = Some(limit.note.clone());
            }
        }
        let setting = settings.get_mut(&rank(&concurrency));
        if let Some(setting) = setting.filter(|_| auto_tune.enabled.value) {
            setting.note = Some(format!("auto-tuned from here, up to {ceiling}"));
        }
        let Setting { value, source } = provider.max_retries;
        set_resolved(settings, &["providers", name, "max_retries"], &value.into(), source);
        let Setting { value, source } = &provider.retry_statuses;
        set_resolved(settings, &["providers", name, "retry_statuses"], &json!(value), *source);
        let breaker = &provider.breaker;
        let Setting { value, source } = breaker.enabled;
        set_resolved(settings, &["providers", name, "breaker"], &value.into(), source);
        let Setting { value, source } = breaker.failures;
        set_resolved(
            settings,
            &["providers", name, "breaker_failures"],
            &value.get().into(),
            source,
        );
        let Setting { value, source } = breaker.open_for;
        if source == Source::Default {
            let text = duration_text(value).into();
            set_resolved(settings, &["providers", name, "breaker_open_for"], &text, source);
        }
        if provider.ramp.is_on() {
            let Setting { value, source } = provider.ramp.floor;
            set_resolved(settings, &["providers", name, "ramp_floor"], &value.get().into(), source);
        }
        for (endpoint, limits) in &provider.endpoints {
            let Setting { value, source } = limits.max_concurrent_requests;
            let Some(value) = value.map(NonZeroU32::get) else { continue };
            let names = ["providers", name, "endpoints", endpoint, "max_concurrent_requests"];
            set_resolved(settings, &names, &value.into(), source);
        }
        for (model, limits) in &provider.model_limits {
            let Setting { value, source } = limits.max_concurrent_requests;
            let Some(value) = value.map(NonZeroU32::get) else { continue };
            let names = ["providers", name, "models", model, "max_concurrent_requests"];
            set_resolved(settings, &names, &value.into(), source);
        }
    }
}

/// Formats a duration in the syntax of the file.
fn duration_text(span: Duration) -> String {
    match span.as_millis() {
        millis if millis % 1_000 == 0 => format!("{}s", millis / 1_000),
        millis => format!("{millis}ms"),
    }
}

/// Sets the value in use, and keeps a different configured value beside it.
fn set_resolved(settings: &mut RankedSettings, names: &[&str], value: &Json, source: Source) {
    let text = value.to_string();
    let key = key_path::join(names);
    let new_entry = EffectiveSetting {
        key,
        value: text.clone(),
        source,
        configured: None,
        shadowed: Vec::new(),
        note: None,
        place: None,
    };
    let entry = settings.entry(rank(names)).or_insert(new_entry);
    // A number from the environment may be stored as text.
    let same = entry.value == text || entry.value.trim_matches(['"', ' ']) == text;
    let configured = std::mem::replace(&mut entry.value, text);
    entry.configured = (!same).then_some(configured);
}

/// Parses JSON text; other text becomes a JSON string.
fn parse_json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn as_json<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    parse_json(text).serialize(serializer)
}

fn as_optional_json<S: Serializer>(
    text: &Option<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    text.as_deref().map(parse_json).serialize(serializer)
}

fn as_shadows<S: Serializer>(
    shadows: &[(Source, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let shadow =
        |(source, text): &(Source, String)| json!({ "source": source, "value": parse_json(text) });
    serializer.collect_seq(shadows.iter().map(shadow))
}
