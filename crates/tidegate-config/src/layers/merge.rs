//! Merging of layers, value by value.
//!
//! A value that a higher layer overrides is kept as a [`Shadow`], so that it can be checked, shown
//! and warned about.

use std::collections::HashMap;
use std::mem;

use crate::layers::conflicts::conflict;
use crate::values::setting::Source;
use crate::values::value::{Entry, Node, Value};

/// The layers merged so far.
#[derive(Debug)]
pub(crate) struct Merged<'a> {
    pub(crate) tree: Value<'a>,
    pub(crate) shadows: Vec<Shadow<'a>>,
}

/// A value that a higher layer overrides.
#[derive(Debug)]
pub(crate) struct Shadow<'a> {
    /// Path of the value.
    pub(crate) names: Vec<String>,
    pub(crate) value: Value<'a>,
    /// Path of the overriding value: the same path, or that of a conflicting key.
    pub(crate) by: Vec<String>,
}

impl<'a> Merged<'a> {
    pub(crate) fn new(defaults: Value<'a>) -> Self {
        Self { tree: defaults, shadows: Vec::new() }
    }

    /// Merges `layer` on top.
    pub(crate) fn overlay(&mut self, layer: Value<'a>) {
        overlay(&mut self.tree, layer, &mut Vec::new(), &mut self.shadows);
    }
}

fn overlay<'a>(
    under: &mut Value<'a>,
    over: Value<'a>,
    names: &mut Vec<String>,
    shadows: &mut Vec<Shadow<'a>>,
) {
    let position = over.position;
    let (Node::Table(below), Node::Table(above)) = (&mut under.node, &over.node) else {
        let value = mem::replace(under, over);
        shadows.push(Shadow { names: names.clone(), value, by: names.clone() });
        return;
    };
    remove_replaced_defaults(below, names, position.source);
    let removed = remove_conflicting(below, above, names);
    // If a layer changes the kind of a policy, a missing key is reported at that layer.
    let removed_any = !removed.is_empty();
    shadows.extend(removed);
    if removed_any || under.position.source == Source::Default || names.as_slice() == ["limits"] {
        under.position = position;
    }
    let index: HashMap<String, usize> =
        below.iter().enumerate().map(|(at, entry)| (entry.key.to_string(), at)).collect();
    let Node::Table(above) = over.node else { return };
    for entry in above {
        match index.get(&*entry.key).and_then(|at| below.get_mut(*at)) {
            Some(lower) => {
                lower.position = entry.position;
                names.push(entry.key.into_owned());
                overlay(&mut lower.value, entry.value, names, shadows);
                names.pop();
            }
            None => below.push(entry),
        }
    }
}

/// Removes defaults that a file replaces by having their section: all limits, and the burst of a
/// module. Other layers override single values.
fn remove_replaced_defaults(below: &mut Vec<Entry<'_>>, names: &[String], source: Source) {
    if source != Source::File {
        return;
    }
    let is_default = |entry: &Entry<'_>| entry.value.position.source == Source::Default;
    match names {
        [section] if section == "limits" => below.retain(|entry| !is_default(entry)),
        [section, module] if section == "modules" && module == "rate_limit" => {
            below.retain(|entry| entry.key != "burst_capacity" || !is_default(entry));
        }
        _ => {}
    }
}

/// Removes and returns the entries that conflict with those of a higher layer.
fn remove_conflicting<'a>(
    below: &mut Vec<Entry<'a>>,
    above: &[Entry<'a>],
    names: &[String],
) -> Vec<Shadow<'a>> {
    let by = |entry: &Entry<'_>| {
        let same = above.iter().any(|over| over.key == entry.key);
        let mut others = above.iter().filter(|_| !same);
        others.find(|over| conflict(names, &over.key, &entry.key)).map(|over| over.key.to_string())
    };
    let path = |key: &str| names.iter().cloned().chain([key.to_owned()]).collect();
    // Only the tables of limits and providers have conflicting keys, and those are small.
    let small =
        matches!(names, [section, _] if ["limits", "providers"].contains(&section.as_str()));
    let mut removed = Vec::new();
    if small {
        for entry in mem::take(below) {
            match by(&entry) {
                Some(key) => removed.push(Shadow {
                    names: path(&entry.key),
                    by: path(&key),
                    value: entry.value,
                }),
                None => below.push(entry),
            }
        }
    }
    removed
}
