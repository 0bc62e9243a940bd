//! `cargo xtask api`: the listings of the public API, `api/CRATE.txt`, with one line per public
//! item of a published crate, with all features.
//!
//! They are committed, so that every change of the API shows in review. The source is rustdoc's
//! JSON. Items with `doc(hidden)` are included, because programs can use them. Methods of
//! implemented traits and auto trait implementations are left out: the line of the `impl` implies
//! them.

mod listing;
mod rustdoc;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, bail};
use rustdoc_types::Crate;

pub(crate) use self::rustdoc::run_as_rustdoc;
use crate::project;

/// The crates to publish. The manifests do not say so, because none is published yet.
pub(crate) const PUBLISHED: &[&str] = &[
    "tidegate",
    "tidegate-core",
    "tidegate-http",
    "tidegate-llm",
    "tidegate-memory",
    "tidegate-providers",
    "tidegate-redis",
    "tidegate-ws",
];

/// Maximum number of public types in some crates together.
struct Bound {
    crates: &'static [&'static str],
    types: usize,
}

/// Bounds that keep the list of types short, because newcomers read it first. A type beyond the
/// bound is made private or replaces another one.
const BOUNDS: &[Bound] = &[
    Bound { crates: &["tidegate"], types: 70 },
    Bound { crates: &["tidegate-llm", "tidegate-providers"], types: 80 },
];

/// Rustdoc's JSON by crate name, with underscores.
type Documents = BTreeMap<String, Crate>;

/// Writes the listings.
pub(crate) fn write() -> Result<()> {
    let documents = rustdoc::documents(&[])?;
    for name in PUBLISHED {
        project::write(&file(name), &listing(name, &documents)?)?;
    }
    check_bounds(BOUNDS, &documents)
}

/// Fails if a committed listing is out of date, or there are too many types.
pub(crate) fn check() -> Result<()> {
    check_with(&[])
}

/// Runs [`check`] with additional arguments for cargo.
pub(crate) fn check_with(extra: &[&str]) -> Result<()> {
    let documents = rustdoc::documents(extra)?;
    let mut differences = String::new();
    for name in PUBLISHED {
        let file = file(name);
        let committed = fs::read_to_string(project::root().join(&file))
            .with_context(|| format!("cannot read {file}; `cargo xtask api` writes it"))?;
        if let Some(difference) = listing::difference(&committed, &listing(name, &documents)?) {
            differences += &format!("{file}\n{difference}");
        }
    }
    if !differences.is_empty() {
        bail!(
            "the public API differs from the committed listings (- committed, + now):\n{differences}\
             If the change is intended, run `cargo xtask api` and commit the listings"
        );
    }
    check_bounds(BOUNDS, &documents)
}

fn file(name: &str) -> String {
    format!("api/{name}.txt")
}

/// The text of one listing.
fn listing(name: &str, documents: &Documents) -> Result<String> {
    let types = types::public(&underscored(name), documents)?.len();
    let items = listing::items(&rustdoc::path(name)?, &documents[&underscored(name)])?;
    Ok(format!(
        "# The public API of {name} with all features: {types} types. Written by `cargo xtask api`.\n\
         {items}"
    ))
}

fn check_bounds(bounds: &[Bound], documents: &Documents) -> Result<()> {
    for bound in bounds {
        let mut all = BTreeSet::new();
        for name in bound.crates {
            all.extend(types::public(&underscored(name), documents)?.into_keys());
        }
        bound.check(all.len())?;
    }
    Ok(())
}

impl Bound {
    fn check(&self, found: usize) -> Result<()> {
        let (names, max) = (self.crates.join(" with "), self.types);
        println!("{names}: {found} public types, at most {max}");
        if found > max {
            bail!(
                "{names}: {found} public types, at most {max} allowed. Make types private that \
                 users do not name; the bound and its reason are in xtask/src/api.rs"
            );
        }
        Ok(())
    }
}

/// The crate name as used in paths.
fn underscored(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_type_too_many_fails() {
        let bound = Bound { crates: &["a", "b"], types: 3 };
        assert!(bound.check(3).is_ok());
        let error = bound.check(4).unwrap_err().to_string();
        assert!(error.starts_with("a with b: 4 public types, at most 3 allowed"), "{error}");
    }

    #[test]
    fn bounds_are_on_published_crates() {
        let mut bounded = BOUNDS.iter().flat_map(|bound| bound.crates);
        assert!(bounded.all(|name| PUBLISHED.contains(name)));
    }
}
