//! The public types of a crate: structs, enums, unions, traits and type aliases.
//!
//! A type counts once, whatever the number of paths to it and the crate that defines it.

use std::collections::BTreeMap;
use std::ptr;

use anyhow::{Context as _, Result};
use rustdoc_types::{Crate, Id, Item, ItemEnum, ItemKind, Module, Use, Visibility};

use super::Documents;

/// Maps the path of each definition to the shortest public path.
pub(super) type Types = BTreeMap<String, String>;

/// Returns the public types of a crate.
pub(super) fn public(name: &str, documents: &Documents) -> Result<Types> {
    let document = documents.get(name).with_context(|| format!("{name} was not documented"))?;
    let mut walk = Walk { documents, open: Vec::new(), types: Types::new() };
    walk.module(document, document.root, name);
    Ok(walk.types)
}

struct Walk<'a> {
    documents: &'a Documents,
    /// The modules on the current path, to avoid a loop if a module exports its parent.
    open: Vec<&'a Module>,
    types: Types,
}

impl<'a> Walk<'a> {
    fn module(&mut self, document: &'a Crate, id: Id, path: &str) {
        let Some(ItemEnum::Module(module)) = document.index.get(&id).map(|item| &item.inner) else {
            return;
        };
        if self.open.iter().any(|open| ptr::eq(*open, module)) {
            return;
        }
        self.open.push(module);
        let items = module.items.iter().filter_map(|id| document.index.get(id));
        for item in items.filter(|item| item.visibility == Visibility::Public) {
            match &item.inner {
                ItemEnum::Use(link) => self.link(document, link, path),
                _ => self.item(document, item, path, item.name.as_deref().unwrap_or_default()),
            }
        }
        self.open.pop();
    }

    fn item(&mut self, document: &'a Crate, item: &'a Item, path: &str, name: &str) {
        let path = format!("{path}::{name}");
        match &item.inner {
            ItemEnum::Module(_) => self.module(document, item.id, &path),
            ItemEnum::Struct(_)
            | ItemEnum::Enum(_)
            | ItemEnum::Union(_)
            | ItemEnum::Trait(_)
            | ItemEnum::TraitAlias(_)
            | ItemEnum::TypeAlias(_) => {
                let definition =
                    document.paths.get(&item.id).map(|summary| summary.path.join("::"));
                self.count(definition.unwrap_or_else(|| path.clone()), path);
            }
            _ => {}
        }
    }

    fn link(&mut self, document: &'a Crate, link: &'a Use, path: &str) {
        let Some(id) = link.id else { return };
        match document.index.get(&id) {
            Some(_) if link.is_glob => self.module(document, id, path),
            Some(item) => self.item(document, item, path, &link.name),
            None => self.foreign(document, id, link, path),
        }
    }

    /// Adds an item of another crate. The document has its kind but not its contents.
    fn foreign(&mut self, document: &'a Crate, id: Id, link: &'a Use, path: &str) {
        let Some(summary) = document.paths.get(&id) else { return };
        let named = format!("{path}::{}", link.name);
        match summary.kind {
            ItemKind::Module => {
                let definition = summary.path.first().and_then(|name| self.documents.get(name));
                let Some(definition) = definition else { return };
                let inside = definition.paths.iter().find(|(_, found)| found.path == summary.path);
                let Some((id, _)) = inside else { return };
                self.module(definition, *id, if link.is_glob { path } else { &named });
            }
            ItemKind::Struct
            | ItemKind::Enum
            | ItemKind::Union
            | ItemKind::Trait
            | ItemKind::TraitAlias
            | ItemKind::TypeAlias => self.count(summary.path.join("::"), named),
            _ => {}
        }
    }

    fn count(&mut self, definition: String, path: String) {
        let length = |path: &str| (path.matches("::").count(), path.len());
        let known = self.types.entry(definition).or_insert_with(|| path.clone());
        if length(&path) < length(known) {
            *known = path;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A crate with item 0 as its root; each item is (name, inner JSON).
    fn document(name: &str, items: &[(&str, Value)], paths: &[(u32, &str, &str)]) -> Crate {
        let items = items.iter().zip(0_u32..).map(|((name, inner), id)| {
            let item = json!({
                "id": id, "crate_id": 0, "name": name, "span": null, "visibility": "public",
                "docs": null, "links": {}, "attrs": [], "deprecation": null, "inner": inner,
            });
            (id.to_string(), item)
        });
        let paths = paths.iter().map(|(id, kind, path)| {
            let path: Vec<&str> = path.split("::").collect();
            (id.to_string(), json!({"crate_id": 0, "kind": kind, "path": path}))
        });
        let text = json!({
            "root": 0, "crate_version": name, "includes_private": false,
            "index": items.collect::<serde_json::Map<_, _>>(),
            "paths": paths.collect::<serde_json::Map<_, _>>(),
            "external_crates": {}, "format_version": rustdoc_types::FORMAT_VERSION,
            "target": {"triple": "", "target_features": []},
        });
        serde_json::from_value(text).unwrap()
    }

    fn module(items: &[u32]) -> Value {
        json!({"module": {"is_crate": false, "items": items, "is_stripped": false}})
    }

    fn link(name: &str, id: u32, is_glob: bool) -> Value {
        json!({"use": {"source": name, "name": name, "id": id, "is_glob": is_glob}})
    }

    fn record() -> Value {
        let generics = json!({"params": [], "where_predicates": []});
        json!({"struct": {"kind": "unit", "generics": generics, "impls": []}})
    }

    fn found(name: &str, documents: Vec<(&str, Crate)>) -> Vec<String> {
        let documents = documents.into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
        let mut paths: Vec<_> = public(name, &documents).unwrap().into_values().collect();
        paths.sort();
        paths
    }

    #[test]
    fn a_type_counts_once_under_its_shortest_path() {
        // mod inner { pub struct One; pub use super::inner; } pub use inner::One as First;
        let items = [
            ("a", module(&[1, 3])),
            ("inner", module(&[2, 4])),
            ("One", record()),
            ("", link("First", 2, false)),
            ("", link("inner", 1, false)),
        ];
        let a = document("a", &items, &[(2, "struct", "a::inner::One")]);
        assert_eq!(found("a", vec![("a", a)]), ["a::First"]);
    }

    #[test]
    fn types_of_other_crates_count_and_so_do_those_in_their_modules() {
        // pub use b::Two; pub use b::MAX; pub use b::inner; pub use b::more::*;
        let items = [
            ("a", module(&[1, 2, 3, 4])),
            ("", link("Two", 10, false)),
            ("", link("MAX", 11, false)),
            ("", link("inner", 12, false)),
            ("", link("more", 13, true)),
        ];
        let paths = [
            (10, "trait", "b::Two"),
            (11, "constant", "b::MAX"),
            (12, "module", "b::inner"),
            (13, "module", "b::more"),
        ];
        let a = document("a", &items, &paths);
        let items = [
            ("b", module(&[1, 3])),
            ("inner", module(&[2])),
            ("Three", record()),
            ("more", module(&[4])),
            ("Four", record()),
        ];
        let paths = [(1, "module", "b::inner"), (3, "module", "b::more")];
        let b = document("b", &items, &paths);
        assert_eq!(found("a", vec![("a", a), ("b", b)]), ["a::Four", "a::Two", "a::inner::Three"]);
    }
}
