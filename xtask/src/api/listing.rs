//! Formats a listing, and compares two listings.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use public_api::{Builder, PublicItem};
use rustdoc_types::{Crate, Id, ItemEnum};

/// Maximum number of lines shown of a difference.
const MAX_SHOWN: usize = 60;

/// Traits that a derive implements in addition. Programs cannot use them.
const INTERNAL: &[&str] = &["StructuralPartialEq", "TrivialClone"];

/// Returns one line per public item. Items of a type follow it; modules are sorted by name.
pub(super) fn items(json: &Path, document: &Crate) -> Result<String> {
    let api = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .with_context(|| format!("cannot list the items in {}", json.display()))?;
    let mut text = String::new();
    // A conversion between two of our types is listed for both.
    let mut seen = HashSet::new();
    for item in api.items().filter(|item| !is_implied(item, document)) {
        let line = line(item, document);
        if seen.insert(line.clone()) {
            text += &line;
            text.push('\n');
        }
    }
    Ok(text)
}

/// Whether another line implies this one, as an `impl` implies the methods of its trait.
fn is_implied(item: &PublicItem, document: &Crate) -> bool {
    let implemented = |id: Id| match &document.index.get(&id)?.inner {
        ItemEnum::Impl(found) => found.trait_.as_ref().map(|found| found.path.as_str()),
        _ => None,
    };
    let is_function = document
        .index
        .get(&item.id())
        .is_some_and(|item| matches!(item.inner, ItemEnum::Function(_)));
    let of_trait = item.parent_id().and_then(implemented).is_some();
    let internal = implemented(item.id()).and_then(|path| path.rsplit("::").next());
    (is_function && of_trait) || internal.is_some_and(|name| INTERNAL.contains(&name))
}

/// The line of an item. A re-export names its source.
fn line(item: &PublicItem, document: &Crate) -> String {
    match document.index.get(&item.id()).map(|item| &item.inner) {
        Some(ItemEnum::Use(link)) => format!("{item} = {}", link.source),
        _ => item.to_string(),
    }
}

/// Returns the lines that only one of two listings has, or `None` if the listings are equal.
pub(super) fn difference(committed: &str, now: &str) -> Option<String> {
    if committed == now {
        return None;
    }
    let (before, after): (HashSet<_>, HashSet<_>) =
        (committed.lines().collect(), now.lines().collect());
    let removed = committed.lines().filter(|line| !after.contains(line));
    let added = now.lines().filter(|line| !before.contains(line));
    let lines: Vec<String> = removed
        .map(|line| format!("- {line}\n"))
        .chain(added.map(|line| format!("+ {line}\n")))
        .collect();
    let mut text: String = lines.iter().take(MAX_SHOWN).map(String::as_str).collect();
    match lines.len() {
        0 => text += "  the same lines in another order, or some of them twice\n",
        count if count > MAX_SHOWN => text += &format!("  and {} more\n", count - MAX_SHOWN),
        _ => {}
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_what_is_gone_and_what_is_new() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\nc\n", "a\nx\nc\n").unwrap(), "- b\n+ x\n");
        assert!(difference("a\nb\n", "b\na\n").unwrap().contains("another order"));
        let many: String = (0..100).map(|number| format!("{number}\n")).collect();
        let text = difference("", &many).unwrap();
        assert!(text.starts_with("+ 0\n") && text.ends_with("  and 40 more\n"), "{text}");
    }
}
