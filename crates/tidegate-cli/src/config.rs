//! `tidegate config`: shows effective settings and changes those in the database.
//!
//! It accesses the database directly, so it works without a server. A running server picks up
//! changes by itself.

use serde::Serialize;
use tidegate_config::{EffectiveSetting, Layers, Overrides, Patch, schema};
use tidegate_server::{
    AuditEntry, ChangeOrigin, Database, SettingUpdate, StartError, check_change,
};

use crate::args::output::Output;
use crate::args::{ConfigAction, ConfigLocation};
use crate::failure::Failure;
use crate::terminal::{eprint_line, print, print_json};

/// Runs a `config` subcommand.
pub(crate) fn config(location: ConfigLocation, action: ConfigAction) -> Result<(), Failure> {
    match action {
        ConfigAction::Schema => print(schema().trim_end()),
        ConfigAction::Show { part, output } => show(location, &part, output),
        ConfigAction::Set { pairs, output } => change(location, &set(&pairs)?, output),
        ConfigAction::Unset { keys, output } => {
            let patch = keys.iter().fold(Patch::default(), |patch, key| patch.unset(key));
            change(location, &patch, output)
        }
        ConfigAction::History { limit, output } => history(location, limit, output),
    }
}

/// Builds a change that sets each key to the value after it.
fn set(pairs: &[String]) -> Result<Patch, Failure> {
    pairs.chunks(2).try_fold(Patch::default(), |patch, pair| match pair {
        [key, value] => Ok(patch.set(key, value)),
        _ => Err(Failure::NoValue(pair.concat())),
    })
}

fn show(location: ConfigLocation, part: &str, output: Output) -> Result<(), Failure> {
    let layers = location.layers()?;
    let layers = match Database::from_config(&layers.validate()?)? {
        None => layers,
        Some(database) => match crate::block_on(database.read())? {
            Ok(stored) => layers.with_overrides(Overrides::from_iter(stored.settings)),
            Err(error) => {
                eprint_line(&format!("showing settings without the database: {error}"));
                layers
            }
        },
    };
    for warning in &layers.validate()?.warnings {
        eprint_line(&warning.to_string());
    }
    let shown: Vec<_> = layers.effective().into_iter().filter(|one| one.is_in(part)).collect();
    if output.json {
        let settings: Vec<_> = shown.iter().map(SettingWithPlace::from).collect();
        return print(&serde_json::to_string_pretty(&settings).map_err(Failure::Json)?);
    }
    print(&table(&shown))
}

/// A setting in the format of the admin API, with its position on this machine.
#[derive(Serialize)]
struct SettingWithPlace<'e> {
    #[serde(flatten)]
    setting: &'e EffectiveSetting,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'e str>,
}

impl<'e> From<&'e EffectiveSetting> for SettingWithPlace<'e> {
    fn from(setting: &'e EffectiveSetting) -> Self {
        Self { setting, place: setting.place.as_deref() }
    }
}

/// Formats settings in columns, one per line.
fn table(settings: &[EffectiveSetting]) -> String {
    let key = settings.iter().map(|one| one.key.len()).max().unwrap_or(0);
    let value = settings.iter().map(|one| one.value.len()).max().unwrap_or(0).min(40);
    let line = |one: &EffectiveSetting| {
        let shadowed: Vec<_> =
            one.shadowed.iter().map(|(source, value)| format!("{source} {value}")).collect();
        let over = if shadowed.is_empty() { String::new() } else { " over ".to_owned() };
        let shadowed = shadowed.join(", ");
        let note = one.note.as_ref().map_or_else(String::new, |note| format!("; {note}"));
        format!("{:key$}  {:value$}  {}{over}{shadowed}{note}", one.key, one.value, one.source)
    };
    settings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The result of a change.
#[derive(Serialize)]
struct Changed {
    /// The revision of the database after it.
    revision: u64,
}

fn change(location: ConfigLocation, patch: &Patch, output: Output) -> Result<(), Failure> {
    patch.check()?;
    let layers = location.layers()?;
    let database = Database::from_config(&layers.validate()?)?.ok_or(Failure::NoDatabase)?;
    let revision = crate::block_on(write(&database, &layers, patch))??;
    if output.json {
        return print_json(&Changed { revision });
    }
    print(&format!("revision {revision}"))
}

/// Validates a change together with all other layers and writes it. Returns the new revision.
async fn write(database: &Database, layers: &Layers, patch: &Patch) -> Result<u64, Failure> {
    let stored = database.read().await?;
    let before = Overrides::from_iter(stored.settings.clone());
    let after = layers.with_overrides(patch.apply(&before));
    check_change(&layers.with_overrides(before.clone()), &after).map_err(StartError::from)?;
    let changes = patch.difference(&before).into_iter();
    let changes: Vec<_> = changes.map(|(key, value)| SettingUpdate { key, value }).collect();
    if changes.is_empty() {
        return Ok(stored.revision);
    }
    let note = ChangeOrigin { door: "cli", who: None };
    // Pass the revision that was validated, so that a concurrent change makes the write fail.
    let stored = database.write(&changes, &note, Some(stored.revision)).await?;
    print_new_warnings(&layers.with_overrides(before), &after);
    Ok(stored.revision)
}

/// Prints the warnings that a change causes.
fn print_new_warnings(before: &Layers, after: &Layers) {
    let warnings =
        |layers: &Layers| layers.validate().map(|plan| plan.warnings).unwrap_or_default();
    let known = warnings(before);
    for warning in warnings(after).iter().filter(|warning| !known.contains(warning)) {
        eprint_line(&warning.to_string());
    }
}

/// Changes, latest first, as in the admin API.
#[derive(Serialize)]
struct History {
    changes: Vec<AuditEntry>,
}

fn history(location: ConfigLocation, limit: usize, output: Output) -> Result<(), Failure> {
    let plan = location.layers()?.validate()?;
    let database = Database::from_config(&plan)?.ok_or(Failure::NoDatabase)?;
    let history = crate::block_on(database.history(limit))??;
    if output.json {
        return print_json(&History { changes: history });
    }
    let lines = history.iter().map(|one| {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        let who = one.who.as_deref().unwrap_or("-");
        let (old, new) = (value(&one.old), value(&one.new));
        format!("{}  {}  {who}  {}  {old} -> {new}", one.revision, one.door, one.key)
    });
    print(&lines.collect::<Vec<_>>().join("\n"))
}
