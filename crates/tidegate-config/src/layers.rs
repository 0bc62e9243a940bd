//! Configuration layers: flags override database, environment, file and defaults, in this order.
//!
//! A running program keeps all layers, so that one can change without reading the others again.
//! They are merged as trees, value by value, and each value records the layer it came from.

mod conflicts;
pub(crate) mod effective;
pub(crate) mod environment;
pub(crate) mod file;
pub(crate) mod flags;
pub(crate) mod loader;
mod merge;
pub(crate) mod overrides;
pub(crate) mod patch;
pub(crate) mod toml_text;
pub(crate) mod tree;
pub(crate) mod variables;
pub(crate) mod yaml_text;

use std::collections::HashMap;
use std::path::{Path as FilePath, PathBuf};

use self::environment::Environment;
use self::file::{DEFAULT_FILE, File};
use self::flags::Flags;
use self::merge::{Merged, Shadow};
use self::overrides::Overrides;
use self::tree::{build_tree, leaves};
use self::variables::{KnownNames, UnknownVariable, VariableLayer};
use crate::config::Config;
use crate::error::{ConfigError, LocatedViolation, Origin};
use crate::sections::keys;
use crate::sections::read_context::ReadContext;
use crate::sections::redact::redacted;
use crate::values::key_path;
use crate::values::setting::{Position, Source};
use crate::values::value::{Node, Value};
use crate::violation::{Rule, Violation};
use crate::warning::Warning;

/// All configuration layers of a program.
///
/// ```
/// use tidegate_config::{Loader, Overrides, Patch, Source};
/// let layers = Loader::default().text_layers("in-line", "[limits.api]\nrate = \"50/s\"\n");
/// let patch = Patch::default().set("limits.api.rate", "10/s");
/// let changed = layers.with_overrides(patch.apply(layers.overrides()));
/// assert_eq!(changed.validate()?.warnings.len(), 1, "the file is shadowed");
/// let rate = changed.effective().into_iter().find(|it| it.key == "limits.api.rate").unwrap();
/// assert_eq!((rate.value.as_str(), rate.source), ("\"10/s\"", Source::Database));
/// # Ok::<(), tidegate_config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Layers {
    pub(crate) lookup: FileLookup,
    pub(crate) file: Option<File>,
    pub(crate) environment: Environment,
    pub(crate) overrides: Overrides,
    /// Where the overrides are kept: in the database, or only in this process.
    pub(crate) overridden_by: Source,
    pub(crate) flags: Flags,
}

/// How the configuration file is found.
#[derive(Clone, Debug)]
pub(crate) enum FileLookup {
    /// At this path, where it must exist.
    Named(PathBuf),
    /// In the usual directories, starting with this one.
    Search(PathBuf),
    /// Not on disk: the text is given.
    Text,
}

/// The merged layers, with the problems found while merging.
pub(crate) struct MergeResult<'l> {
    pub(crate) merged: Merged<'l>,
    pub(crate) violations: Vec<Violation>,
    warnings: Vec<Warning>,
    unknown: Vec<UnknownVariable>,
}

impl Layers {
    /// Validates the merged layers.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with all violations of all layers.
    pub fn validate(&self) -> Result<Config, ConfigError> {
        self.read(ReadContext::new(&self.environment), |_, _| Vec::new())
    }

    /// Validates the merged layers strictly: also rejects errors that do not prevent a start, such
    /// as an `api_key_env` whose variable is not set, or a fallback that can never be used.
    ///
    /// ```
    /// let text = "[providers.openai]\napi_key_env = \"OPENAI_API_KEY\"\n";
    /// let layers = tidegate_config::Loader::default().text_layers("in-line", text);
    /// assert_eq!(layers.validate()?.warnings.len(), 1);
    /// assert!(layers.validate_strictly().is_err());
    /// # Ok::<(), tidegate_config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with all violations of all layers.
    pub fn validate_strictly(&self) -> Result<Config, ConfigError> {
        self.read(ReadContext::for_check(&self.environment), |_, _| Vec::new())
    }

    /// Validates the merged layers, by the rules of all sections and by `more`.
    pub(crate) fn read(
        &self,
        mut context: ReadContext<'_>,
        more: impl FnOnce(&Value<'_>, &Config) -> Vec<Violation>,
    ) -> Result<Config, ConfigError> {
        let MergeResult { merged, mut violations, warnings, unknown } = self.merge();
        let config = Config::read(&merged.tree, &mut context, &mut violations);
        violations.extend(more(&merged.tree, &config));
        violations
            .extend(merged.shadows.iter().filter_map(|shadow| check_shadowed(shadow, &context)));
        if !violations.is_empty() {
            return Err(ConfigError::Invalid(self.locate(violations)));
        }
        let unused = self.unused_warnings(&merged);
        let shadowed = override_warnings(&merged);
        let not_tiers = config.admission.unusable_tiers(&config.limits);
        let not_tiers = not_tiers.map(|limit| Warning::NotATier { limit });
        Ok(Config {
            file: self.file().map(ToOwned::to_owned),
            unknown_variables: unknown,
            warnings: warnings
                .into_iter()
                .chain(context.warnings)
                .chain(unused)
                .chain(not_tiers)
                .chain(shadowed)
                .chain(self.unsaved_warning())
                .collect(),
            ..config
        })
    }

    /// Returns these layers with the file read again, found the same way as before.
    ///
    /// # Errors
    /// [`ConfigError::Read`] if the file cannot be read.
    pub fn reload_file(&self) -> Result<Self, ConfigError> {
        let file = match self.lookup {
            FileLookup::Text => self.file.clone(),
            _ => self.lookup.read(&self.environment)?,
        };
        Ok(Self { file, ..self.clone() })
    }

    /// Returns these layers with another database layer.
    #[must_use]
    pub fn with_overrides(&self, overrides: Overrides) -> Self {
        Self { overrides, overridden_by: Source::Database, ..self.clone() }
    }

    /// Returns these layers with other run-time changes that no database keeps.
    ///
    /// ```
    /// use tidegate_config::{Loader, Overrides, Patch, Source};
    /// let layers = Loader::default().text_layers("none", "");
    /// let patch = Patch::default().set("limits.client.rate", "10/s");
    /// let changed = layers.with_runtime_overrides(patch.apply(layers.overrides()));
    /// let rate = changed.effective().into_iter().find(|it| it.key == "limits.client.rate").unwrap();
    /// assert_eq!(rate.source, Source::Runtime);
    /// ```
    #[must_use]
    pub fn with_runtime_overrides(&self, overrides: Overrides) -> Self {
        Self { overrides, overridden_by: Source::Runtime, ..self.clone() }
    }

    /// Returns the settings changed at run time, which is the content of the database if there is
    /// one.
    #[must_use]
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Returns whether both have the same file with the same text.
    #[must_use]
    pub fn has_same_file(&self, other: &Self) -> bool {
        self.file == other.file
    }

    /// Returns the path of the file that was read, if any.
    #[must_use]
    pub fn file(&self) -> Option<&FilePath> {
        self.file.as_ref().map(|file| file.path.as_path())
    }

    /// Merges the layers, the lowest first.
    pub(crate) fn merge(&self) -> MergeResult<'_> {
        let mut violations = Vec::new();
        let defaults = toml_text::parse(DEFAULT_FILE, Source::Default, &mut violations);
        let file = self.file.as_ref();
        let file = file.map(|file| file.parse(&mut violations));
        let database = build_tree(self.overrides.leaves(self.overridden_by, &mut violations));
        let mut names = KnownNames::default();
        [Some(&defaults), file.as_ref(), Some(&database)]
            .into_iter()
            .flatten()
            .for_each(|layer| names.add_layer(layer));
        let variables = VariableLayer::read(&self.environment, names);
        violations.extend(variables.violations);
        let mut merged = Merged::new(defaults);
        let environment = build_tree(variables.leaves);
        let flags = build_tree(self.flags.leaves());
        for layer in [file, Some(environment), Some(database), Some(flags)].into_iter().flatten() {
            merged.overlay(layer);
        }
        MergeResult { merged, violations, warnings: variables.warnings, unknown: variables.unknown }
    }

    /// Returns a warning for each effective, explicitly set value of a key that is unused or used by
    /// the library only.
    fn unused_warnings(&self, merged: &Merged<'_>) -> Vec<Warning> {
        let warning = |(names, value): (Vec<&str>, &Value<'_>)| {
            let known = keys::find(&names).filter(|_| value.position.source != Source::Default)?;
            let (key, origin) = (key_path::join(&names), self.origin(value.position));
            match (known.unused_reason(), known.library_reason()) {
                (Some(why), _) => Some(Warning::Unused { key, origin, why }),
                (None, Some(why)) => Some(Warning::LibraryOnly { key, origin, why }),
                (None, None) => None,
            }
        };
        leaves(&merged.tree).into_iter().filter_map(warning).collect()
    }

    /// Returns a warning if changes at run time would be lost on restart.
    fn unsaved_warning(&self) -> Option<Warning> {
        let lost = self.overridden_by == Source::Runtime && !self.overrides.is_empty();
        lost.then(|| Warning::LostOnRestart { settings: self.overrides.len() })
    }

    /// Translates an internal position into one that users understand.
    pub(crate) fn origin(&self, position: Position) -> Origin {
        let variable = || position.at.and_then(|at| self.environment.get_at(at));
        match position.source {
            Source::Default => Origin::Default,
            Source::File => match &self.file {
                Some(file) => file.origin(position.at),
                None => Origin::Default,
            },
            Source::Environment => {
                Origin::Environment(variable().map_or(String::new(), |(name, _)| name.clone()))
            }
            Source::Database => Origin::Database,
            Source::Runtime => Origin::Runtime,
            Source::Flag => Origin::Flag(position.at.map_or("", |at| self.flags.name_at(at))),
        }
    }

    /// Sorts violations by layer, and within the file by position.
    fn locate(&self, mut violations: Vec<Violation>) -> Vec<LocatedViolation> {
        violations.sort_by_key(|violation| {
            let in_text = violation.position.source == Source::File;
            (violation.position.source, violation.position.at.filter(|_| in_text))
        });
        let locate = |violation: Violation| LocatedViolation {
            origin: self.origin(violation.position),
            violation,
        };
        violations.into_iter().map(locate).collect()
    }
}

impl FileLookup {
    /// Reads the file, if there is one.
    pub(crate) fn read(&self, environment: &Environment) -> Result<Option<File>, ConfigError> {
        match self {
            Self::Named(path) => File::read(path).map(Some),
            Self::Search(working) => File::first(&file::candidates(working, environment)),
            Self::Text => Ok(None),
        }
    }
}

/// Checks a shadowed value, which becomes effective when the value above it is removed.
fn check_shadowed(shadow: &Shadow<'_>, context: &ReadContext<'_>) -> Option<Violation> {
    let (value, names) = (&shadow.value, &shadow.names);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if value.position.source == Source::Default {
        return None;
    }
    let rule = match (keys::find(&names), &value.node) {
        (Some(known), _) => {
            let bounded = ["max_concurrent_requests", "max_retries"];
            let bounded = names.last().is_some_and(|name| bounded.contains(name));
            let lenient = bounded && context.is_lenient(value.position);
            known.check(value).err().filter(|_| !lenient)?
        }
        (None, Node::Table(_)) => return None,
        (None, _) if is_section(&names) => Rule::NotTable,
        (None, _) => patch::unknown_key_rule(&names),
    };
    Some(Violation::at_names(&names, value, rule))
}

/// Returns whether `names` is the path of a section.
fn is_section(names: &[&str]) -> bool {
    keys::known_keys().any(|key| {
        let mut parts = key.path().split('.');
        names.iter().all(|name| parts.next().is_some_and(|part| part == "*" || part == *name))
    })
}

/// Returns a warning for each value of file or environment that a run-time change shadows.
fn override_warnings(merged: &Merged<'_>) -> Vec<Warning> {
    let winners: HashMap<Vec<&str>, &Value<'_>> = leaves(&merged.tree).into_iter().collect();
    let hidden = merged.shadows.iter().filter(|shadow| {
        [Source::File, Source::Environment].contains(&shadow.value.position.source)
    });
    let warning = |shadow: &Shadow<'_>| {
        let by: Vec<&str> = shadow.by.iter().map(String::as_str).collect();
        let changed = [Source::Database, Source::Runtime];
        let winner = winners.get(&by).filter(|it| changed.contains(&it.position.source))?;
        let names: Vec<&str> = shadow.names.iter().map(String::as_str).collect();
        Some(Warning::Shadowed {
            value: redacted(&names, &shadow.value).to_string(),
            key: key_path::join(&names),
            source: shadow.value.position.source,
            by_value: redacted(&by, winner).to_string(),
            by: key_path::join(&by),
            by_source: winner.position.source,
        })
    };
    hidden.filter_map(warning).collect()
}
