//! The crates that are linked into the program: its normal dependencies on this platform with the
//! features that it uses, without macros and build tools.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

use super::build::PACKAGE;
use crate::process;
use crate::project;

/// The linked crates.
#[derive(Debug)]
pub(super) struct Linked {
    metadata: Metadata,
    /// By name and version, which is the order in documents.
    packages: BTreeMap<(String, String), PackageId>,
}

impl Linked {
    /// Asks cargo.
    pub(super) fn find(target: &str) -> Result<Self> {
        let mut tree = process::cargo(["tree", "--package", PACKAGE, "--target", target]);
        tree.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]);
        let tree = process::read(tree)?;
        let mut command = MetadataCommand::new();
        let metadata = command
            .current_dir(project::root())
            .other_options(vec!["--filter-platform".to_owned(), target.to_owned()])
            .exec()
            .context("cargo metadata failed")?;
        let mut packages = BTreeMap::new();
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let (name, version) =
                name_and_version(line).with_context(|| format!("cargo tree printed {line:?}"))?;
            let is_it = |one: &&Package| one.name == name && one.version.to_string() == version;
            let package = metadata.packages.iter().find(is_it);
            let package = package.with_context(|| format!("cargo metadata lacks {line}"))?;
            packages.insert((name.to_owned(), version.to_owned()), package.id.clone());
        }
        Ok(Self { metadata, packages })
    }

    /// All packages, also our own, in order.
    pub(super) fn packages(&self) -> impl Iterator<Item = &Package> {
        self.packages.values().map(|id| &self.metadata[id])
    }

    /// The packages that others wrote, in order.
    pub(super) fn external(&self) -> impl Iterator<Item = &Package> {
        self.packages().filter(|package| !is_ours(package))
    }

    /// The linked dependencies of a package, in order.
    pub(super) fn dependencies(&self, package: &Package) -> Vec<&Package> {
        let mut nodes = self.metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
        let node = nodes.find(|node| node.id == package.id);
        let edges = node.iter().flat_map(|node| &node.deps);
        let normal = edges
            .filter(|edge| edge.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
        let ids: Vec<&PackageId> = normal.map(|edge| &edge.pkg).collect();
        self.packages().filter(|other| ids.contains(&&other.id)).collect()
    }
}

/// Whether the sources of a package are in this repository.
pub(super) fn is_ours(package: &Package) -> bool {
    package.source.is_none()
}

/// Reads `name v1.2.3 ...`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_tree_are_read() {
        assert_eq!(name_and_version("itoa v1.0.18 (*)"), Some(("itoa", "1.0.18")));
        assert_eq!(name_and_version("tidegate v0.1.0 (/x/y)"), Some(("tidegate", "0.1.0")));
        assert_eq!(name_and_version("[dev-dependencies]"), None);
    }
}
