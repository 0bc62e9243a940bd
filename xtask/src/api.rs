//! The listings of the public API, `api/CRATE.txt`: one line for each public item of a published
//! crate, with all features.
//!
//! They are committed, so that a change of the API is seen in review and none happens by mistake.
//! The source is the JSON of rustdoc. Items under `doc(hidden)` are listed and counted as well:
//! programs can use them. Methods of implemented traits and implementations that the compiler adds
//! by itself are left out: the line of the `impl` says as much.

mod listing;
mod rustdoc;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, bail};
use rustdoc_types::Crate;

pub(crate) use self::rustdoc::run_as_rustdoc;
use crate::project;

/// The crates that programs of others depend on. The manifests cannot tell: none is published yet.
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

/// The most public types of some crates together.
struct Bound {
    crates: &'static [&'static str],
    types: usize,
}

/// A newcomer reads the list of types before anything else, so it must stay short. A type beyond
/// the bound goes into a module of its crate that is private, or replaces another one.
const BOUNDS: &[Bound] = &[
    Bound { crates: &["tidegate"], types: 70 },
    // The goal is 80: what is left over is what the gateway needs of accounts, memory and paths.
    Bound { crates: &["tidegate-llm", "tidegate-providers"], types: 92 },
];

/// Documents by the name of their crate, as rustdoc writes it: with underscores.
type Documents = BTreeMap<String, Crate>;

/// Writes the listings.
pub(crate) fn write() -> Result<()> {
    let documents = rustdoc::documents(&[])?;
    for name in PUBLISHED {
        project::write(&file(name), &listing(name, &documents)?)?;
    }
    check_bounds(BOUNDS, &documents)
}

/// Fails if a committed listing is not what rustdoc gives, or there are too many types.
pub(crate) fn check() -> Result<()> {
    check_with(&[])
}

/// Fails if a committed listing is not what rustdoc gives, or there are too many types, with
/// further arguments for cargo.
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
            "the public API is not what is committed (- committed, + now):\n{differences}\
             If the change is meant, run `cargo xtask api` and commit the listings with it"
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
                "{names}: {found} public types, and {max} is the most. Make those private that \
                 users do not name; the bound and its reason are in xtask/src/api.rs"
            );
        }
        Ok(())
    }
}

/// The name of a crate in paths.
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
        assert!(error.starts_with("a with b: 4 public types, and 3 is the most"), "{error}");
    }

    #[test]
    fn bounds_are_on_published_crates() {
        let mut bounded = BOUNDS.iter().flat_map(|bound| bound.crates);
        assert!(bounded.all(|name| PUBLISHED.contains(name)));
    }
}
