//! Builds value trees from single values by path, for layers that are not text.

use std::borrow::Cow;

use crate::values::value::{Entry, Node, Value};

/// A value with its path.
#[derive(Debug)]
pub(crate) struct Leaf<'a> {
    pub(crate) names: Vec<String>,
    pub(crate) value: Value<'a>,
}

/// Builds a tree from values with paths.
pub(crate) fn build_tree(mut leaves: Vec<Leaf<'_>>) -> Value<'_> {
    // Sorting groups paths with a common prefix, so the table to extend is always the last one.
    leaves.sort_by(|a, b| a.names.cmp(&b.names));
    let mut top = Value::from(Node::Table(Vec::new()));
    for leaf in leaves {
        insert(&mut top, &leaf.names, leaf.value);
    }
    top
}

fn insert<'a>(table: &mut Value<'a>, names: &[String], value: Value<'a>) {
    let position = value.position;
    let (Node::Table(entries), [name, below @ ..]) = (&mut table.node, names) else { return };
    if entries.is_empty() {
        table.position = position;
    }
    let key = || Cow::Owned(name.clone());
    if below.is_empty() {
        entries.push(Entry { key: key(), position, value });
        return;
    }
    let is_open = |last: &Entry<'_>| last.key == *name && matches!(last.value.node, Node::Table(_));
    if !entries.last().is_some_and(is_open) {
        entries.push(Entry {
            key: key(),
            position,
            value: Value { node: Node::Table(Vec::new()), position },
        });
    }
    if let Some(last) = entries.last_mut() {
        insert(&mut last.value, below, value);
    }
}

/// Returns all values of a tree that are not tables, in order, with their paths.
pub(crate) fn leaves<'t, 'a>(tree: &'t Value<'a>) -> Vec<(Vec<&'t str>, &'t Value<'a>)> {
    let mut found = Vec::new();
    walk(tree, &mut Vec::new(), &mut found);
    found
}

fn walk<'t, 'a>(
    value: &'t Value<'a>,
    names: &mut Vec<&'t str>,
    found: &mut Vec<(Vec<&'t str>, &'t Value<'a>)>,
) {
    let Node::Table(entries) = &value.node else {
        found.push((names.clone(), value));
        return;
    };
    for entry in entries {
        names.push(&entry.key);
        walk(&entry.value, names, found);
        names.pop();
    }
}

/// Returns the keys of a top-level table.
pub(crate) fn names_in<'t>(tree: &'t Value<'_>, table: &str) -> Vec<&'t str> {
    table_in(tree, table).map_or(Vec::new(), |table| match &table.node {
        Node::Table(entries) => entries.iter().map(|entry| &*entry.key).collect(),
        _ => Vec::new(),
    })
}

/// Returns the value of a top-level key.
pub(crate) fn table_in<'t, 'a>(tree: &'t Value<'a>, key: &str) -> Option<&'t Value<'a>> {
    let Node::Table(entries) = &tree.node else { return None };
    entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
}
