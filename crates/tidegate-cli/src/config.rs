//! `tidegate config`: the settings in force, and those of the database.
//!
//! It reads and writes the database itself, so that it works without a server; one that runs takes
//! a change over by itself.

use serde::Serialize;
use tidegate_config::{Effective, Layers, Overrides, Patch, schema};
use tidegate_server::{Change, Database, Note, StartError, check_change};

use crate::args::{ConfigAction, ConfigLocation};
use crate::failure::Failure;
use crate::terminal::{eprint_line, print};

/// Does what was asked for.
pub(crate) fn config(location: ConfigLocation, action: ConfigAction) -> Result<(), Failure> {
    match action {
        ConfigAction::Schema => print(schema().trim_end()),
        ConfigAction::Show { part, json } => show(location, &part, json),
        ConfigAction::Set { pairs } => change(location, &set(&pairs)?),
        ConfigAction::Unset { keys } => {
            let patch = keys.iter().fold(Patch::default(), |patch, key| patch.unset(key));
            change(location, &patch)
        }
        ConfigAction::History { limit } => history(location, limit),
    }
}

/// One change that sets every key to the value after it.
fn set(pairs: &[String]) -> Result<Patch, Failure> {
    pairs.chunks(2).try_fold(Patch::default(), |patch, pair| match pair {
        [key, value] => Ok(patch.set(key, value)),
        _ => Err(Failure::NoValue(pair.concat())),
    })
}

fn show(location: ConfigLocation, part: &str, json: bool) -> Result<(), Failure> {
    let layers = location.layers()?;
    let layers = match Database::of(&layers.plan()?)? {
        None => layers,
        Some(database) => match crate::block_on(database.read())? {
            Ok(stored) => layers.with_overrides(Overrides::from_iter(stored.settings)),
            Err(error) => {
                eprint_line(&format!("without the database: {error}"));
                layers
            }
        },
    };
    for warning in &layers.plan()?.warnings {
        eprint_line(&warning.to_string());
    }
    let shown: Vec<_> = layers.effective().into_iter().filter(|one| one.is_in(part)).collect();
    if json {
        let settings: Vec<_> = shown.iter().map(SettingWithPlace::from).collect();
        return print(&serde_json::to_string_pretty(&settings).map_err(Failure::Json)?);
    }
    print(&table(&shown))
}

/// A setting as the admin API shows it, and where on this machine it was given.
#[derive(Serialize)]
struct SettingWithPlace<'e> {
    #[serde(flatten)]
    setting: &'e Effective,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'e str>,
}

impl<'e> From<&'e Effective> for SettingWithPlace<'e> {
    fn from(setting: &'e Effective) -> Self {
        Self { setting, place: setting.place.as_deref() }
    }
}

/// A line for each setting, in columns.
fn table(settings: &[Effective]) -> String {
    let key = settings.iter().map(|one| one.key.len()).max().unwrap_or(0);
    let value = settings.iter().map(|one| one.value.len()).max().unwrap_or(0).min(40);
    let line = |one: &Effective| {
        let shadowed: Vec<_> =
            one.shadowed.iter().map(|(source, value)| format!("{source} {value}")).collect();
        let over = if shadowed.is_empty() { String::new() } else { " over ".to_owned() };
        let shadowed = shadowed.join(", ");
        let note = one.note.as_ref().map_or_else(String::new, |note| format!("; {note}"));
        format!("{:key$}  {:value$}  {}{over}{shadowed}{note}", one.key, one.value, one.source)
    };
    settings.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn change(location: ConfigLocation, patch: &Patch) -> Result<(), Failure> {
    patch.check()?;
    let layers = location.layers()?;
    let database = Database::of(&layers.plan()?)?.ok_or(Failure::NoDatabase)?;
    let revision = crate::block_on(write(&database, &layers, patch))??;
    print(&format!("revision {revision}"))
}

/// Writes a change that makes sense together with everything else.
async fn write(database: &Database, layers: &Layers, patch: &Patch) -> Result<u64, Failure> {
    let stored = database.read().await?;
    let before = Overrides::from_iter(stored.settings.clone());
    let after = layers.with_overrides(patch.apply(&before));
    check_change(&layers.with_overrides(before.clone()), &after).map_err(StartError::from)?;
    let changes = patch.difference(&before).into_iter();
    let changes: Vec<_> = changes.map(|(key, value)| Change { key, value }).collect();
    if changes.is_empty() {
        return Ok(stored.revision);
    }
    let note = Note { door: "cli", who: None };
    // Somebody else may have written in between; what was checked then is not what would hold.
    let stored = database.write(&changes, &note, Some(stored.revision)).await?;
    print_new_warnings(&layers.with_overrides(before), &after);
    Ok(stored.revision)
}

/// Tells what people should look at since a change, and not before.
fn print_new_warnings(before: &Layers, after: &Layers) {
    let warnings = |layers: &Layers| layers.plan().map(|plan| plan.warnings).unwrap_or_default();
    let known = warnings(before);
    for warning in warnings(after).iter().filter(|warning| !known.contains(warning)) {
        eprint_line(&warning.to_string());
    }
}

fn history(location: ConfigLocation, limit: usize) -> Result<(), Failure> {
    let plan = location.layers()?.plan()?;
    let database = Database::of(&plan)?.ok_or(Failure::NoDatabase)?;
    let history = crate::block_on(database.history(limit))??;
    let lines = history.iter().map(|one| {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        let who = one.who.as_deref().unwrap_or("-");
        let (old, new) = (value(&one.old), value(&one.new));
        format!("{}  {}  {who}  {}  {old} -> {new}", one.revision, one.door, one.key)
    });
    print(&lines.collect::<Vec<_>>().join("\n"))
}
