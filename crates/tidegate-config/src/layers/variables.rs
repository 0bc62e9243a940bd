//! The environment as a layer: maps variables to settings.
//!
//! Every key has a variable: `TIDEGATE_` followed by its path in upper case. Case, dots and dashes
//! of limit and provider names are lost in a variable, so it refers to the matching name of another
//! layer; if two names match, the variable is an error. Unknown variables with our prefix only
//! cause a hint, because other programs set some too: Kubernetes does for a service named
//! `tidegate`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::layers::environment::Environment;
use crate::layers::tree::{Leaf, names_in};
use crate::sections::keys::{KnownKey, known_keys};
use crate::sections::proxy;
use crate::values::key_path;
use crate::values::setting::{Position, Source};
use crate::values::value::Value;
use crate::violation::{Rule, Violation, nearest};
use crate::warning::Warning;

const PREFIX: &str = "TIDEGATE_";

/// Suffixes of unprefixed provider variables, and the keys they set.
const PROVIDER_VARIABLES: [(&str, &str); 2] =
    [("_MAX_CONCURRENT", "max_concurrent_requests"), ("_MAX_RETRIES", "max_retries")];

/// Returns the unprefixed variables of a key, such as `*_MAX_RETRIES` for
/// `providers.*.max_retries`; `*` stands for the provider name.
pub(crate) fn unprefixed_variables(path: &str) -> Vec<String> {
    let is_proxy_key = |(key, _): &&(&str, _)| path.strip_prefix("proxy.") == Some(*key);
    if let Some((_, variables)) = proxy::VARIABLES.iter().find(is_proxy_key) {
        return variables.iter().map(|&variable| variable.to_owned()).collect();
    }
    let own = path.strip_prefix("providers.*.");
    let plain = PROVIDER_VARIABLES.iter().filter(|(_, key)| own == Some(*key));
    plain.map(|(suffix, _)| format!("*{suffix}")).collect()
}

/// A variable that looks like a misspelled setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable {
    /// Name of the variable.
    pub name: String,
    /// The most similar known variable.
    pub suggestion: String,
}

impl fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is set but is not a known variable; did you mean {}?",
            self.name, self.suggestion
        )
    }
}

/// Limit and provider names of the other layers, by their spelling in variables.
#[derive(Debug, Default)]
pub(crate) struct KnownNames {
    limits: BTreeMap<String, BTreeSet<String>>,
    providers: BTreeMap<String, BTreeSet<String>>,
}

impl KnownNames {
    /// Adds the names of a layer.
    pub(crate) fn add_layer(&mut self, tree: &Value<'_>) {
        for (section, known) in [("limits", &mut self.limits), ("providers", &mut self.providers)] {
            for name in names_in(tree, section) {
                known.entry(variable_form(name)).or_default().insert(name.to_owned());
            }
        }
    }

    fn for_key(&self, key: &KnownKey) -> &BTreeMap<String, BTreeSet<String>> {
        if key.path().starts_with("limits.") { &self.limits } else { &self.providers }
    }
}

/// Returns the spelling of a name in a variable.
pub(crate) fn variable_form(name: &str) -> String {
    name.to_uppercase().replace(['-', '.'], "_")
}

/// The settings found in an environment.
#[derive(Debug, Default)]
pub(crate) struct VariableLayer<'e> {
    pub(crate) leaves: Vec<Leaf<'e>>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) unknown: Vec<UnknownVariable>,
}

impl<'e> VariableLayer<'e> {
    /// Reads an environment; `names` are the names of the other layers.
    pub(crate) fn read(environment: &'e Environment, mut names: KnownNames) -> Self {
        let mut layer = Self::default();
        for (at, (name, text)) in environment.iter().enumerate() {
            if name.strip_prefix(PREFIX).is_some() {
                layer.read_prefixed(name, text, at, &names);
            }
        }
        for leaf in &layer.leaves {
            if let [section, name, _, ..] = leaf.names.as_slice()
                && section == "providers"
            {
                names.providers.entry(variable_form(name)).or_default().insert(name.clone());
            }
        }
        for (variable, providers) in &names.providers {
            for (suffix, key) in PROVIDER_VARIABLES {
                layer.read_provider_variable(
                    environment,
                    &format!("{variable}{suffix}"),
                    providers,
                    key,
                );
            }
        }
        for (key, variables) in proxy::VARIABLES {
            layer.read_proxy_variables(environment, key, variables);
        }
        layer
    }

    /// Reads the proxy variables of a key. The first non-empty one wins; `TIDEGATE_` variables
    /// precede all.
    fn read_proxy_variables(
        &mut self,
        environment: &'e Environment,
        key: &str,
        variables: &[&str],
    ) {
        let names = vec!["proxy".to_owned(), key.to_owned()];
        if self.leaves.iter().any(|leaf| leaf.names == names) {
            return;
        }
        let found = variables.iter().find_map(|variable| {
            let mut all = environment.iter().enumerate();
            all.find(|(_, (name, text))| name == variable && !text.trim().is_empty())
        });
        let Some((at, (_, text))) = found else { return };
        let position = Position { source: Source::Environment, at: Some(at) };
        self.leaves.push(Leaf { names, value: Value { position, ..Value::text(text.as_str()) } });
    }

    /// Reads a variable with the `TIDEGATE_` prefix.
    fn read_prefixed(&mut self, name: &str, text: &'e str, at: usize, names: &KnownNames) {
        let position = Position { source: Source::Environment, at: Some(at) };
        match resolve_variable(name, names) {
            VariableTarget::Setting(path, key) => {
                let value = Value { node: key.kind().read(text), position };
                self.leaves.push(Leaf { names: path, value });
            }
            VariableTarget::Ambiguous(paths) => self.ambiguous(&paths, position),
            VariableTarget::Unknown => self.unknown.extend(suggest(name, names)),
        }
    }

    /// Reads an unprefixed variable of a provider.
    fn read_provider_variable(
        &mut self,
        environment: &'e Environment,
        variable: &str,
        providers: &BTreeSet<String>,
        key: &str,
    ) {
        let found = environment.iter().enumerate().find(|(_, (name, _))| name == variable);
        let Some((at, (_, text))) = found else { return };
        let position = Position { source: Source::Environment, at: Some(at) };
        let path = |name: &String| vec!["providers".to_owned(), name.clone(), key.to_owned()];
        let mut paths = providers.iter().map(path);
        match (paths.next(), paths.next()) {
            (Some(names), None) => {
                if let Some(leaf) = self.leaves.iter().find(|leaf| leaf.names == names) {
                    let used = leaf.value.position.at.and_then(|at| environment.get_at(at));
                    let used = used.map_or("", |(name, _)| name);
                    self.warnings.push(Warning::ConflictingVariables {
                        used: used.to_owned(),
                        unused: variable.to_owned(),
                    });
                } else {
                    let value = Value { position, ..Value::text(text.as_str()) };
                    self.leaves.push(Leaf { names, value });
                }
            }
            _ => self.ambiguous(&providers.iter().map(path).collect::<Vec<_>>(), position),
        }
    }

    fn ambiguous(&mut self, paths: &[Vec<String>], position: Position) {
        let rule = Rule::Ambiguous(paths.iter().map(|names| key_path::join(names)).collect());
        self.violations.push(Violation { key: String::new(), value: None, rule, position });
    }
}

/// The setting that a variable refers to.
enum VariableTarget {
    Unknown,
    Setting(Vec<String>, &'static KnownKey),
    Ambiguous(Vec<Vec<String>>),
}

fn resolve_variable(variable: &str, names: &KnownNames) -> VariableTarget {
    let mut known = Vec::new();
    let mut new_name: Option<(usize, Vec<String>, &'static KnownKey)> = None;
    for key in known_keys() {
        for wildcards_matched in match_wildcards(&key.variable(), variable) {
            let [first, rest @ ..] = wildcards_matched.as_slice() else {
                return VariableTarget::Setting(path(key, &[]), key);
            };
            let rest: Vec<_> = rest.iter().map(|name| name.to_lowercase()).collect();
            let named = |first: &str| {
                let all: Vec<_> =
                    [first].into_iter().chain(rest.iter().map(String::as_str)).collect();
                path(key, &all)
            };
            let known_names = names.for_key(key).get(*first);
            known.extend(known_names.into_iter().flatten().map(|name| (named(name), key)));
            // For a name that no layer has, the shortest reading wins: it has the longest key.
            let length = wildcards_matched.iter().map(|name| name.len()).sum();
            if new_name.as_ref().is_none_or(|(shortest, ..)| length < *shortest) {
                new_name = Some((length, named(&first.to_lowercase()), key));
            }
        }
    }
    if known.len() > 1 {
        return VariableTarget::Ambiguous(known.into_iter().map(|(path, _)| path).collect());
    }
    let new_name = new_name.map(|(_, path, key)| (path, key));
    known
        .pop()
        .or(new_name)
        .map_or(VariableTarget::Unknown, |(path, key)| VariableTarget::Setting(path, key))
}

/// Returns the path of a key with its wildcards replaced by `names`.
fn path(key: &KnownKey, names: &[&str]) -> Vec<String> {
    let mut names = names.iter();
    let part = |part: &str| match part {
        "*" => names.next().copied().unwrap_or(part).to_owned(),
        part => part.to_owned(),
    };
    key.path().split('.').map(part).collect()
}

/// Returns all ways to fill the wildcards of `pattern` that result in `variable`.
fn match_wildcards<'v>(pattern: &str, variable: &'v str) -> Vec<Vec<&'v str>> {
    let Some((head, tail)) = pattern.split_once('*') else {
        return if pattern == variable { vec![Vec::new()] } else { Vec::new() };
    };
    let Some(rest) = variable.strip_prefix(head) else { return Vec::new() };
    let is_name = |name: &str| {
        let is_allowed =
            |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        name.starts_with(|c: char| c.is_ascii_uppercase()) && name.bytes().all(is_allowed)
    };
    let ends = rest.char_indices().map(|(at, _)| at).filter(|at| is_name(&rest[..*at]));
    ends.flat_map(|at| {
        let filled = |mut more: Vec<&'v str>| {
            more.insert(0, &rest[..at]);
            more
        };
        match_wildcards(tail, &rest[at..]).into_iter().map(filled).collect::<Vec<_>>()
    })
    .collect()
}

/// Returns the most similar known variable, if the section matches.
fn suggest(name: &str, names: &KnownNames) -> Option<UnknownVariable> {
    let mut candidates = Vec::new();
    for key in known_keys() {
        let variable = key.variable();
        match variable.matches('*').count() {
            0 => candidates.push(variable),
            1 => {
                let names = names.for_key(key).keys();
                candidates.extend(names.map(|name| variable.replace('*', name)));
            }
            _ => {}
        }
    }
    let section = |variable: &str| variable.splitn(3, '_').take(2).collect::<Vec<_>>().join("_");
    let is_near = candidates.iter().any(|known| section(known) == section(name));
    let nearest = nearest(name, candidates.iter().map(String::as_str)).filter(|_| is_near)?;
    Some(UnknownVariable { name: name.to_owned(), suggestion: nearest.to_owned() })
}
