//! Allowed dependencies between our crates.
//!
//! The table is the architecture: a new crate or a new dependency needs a row or an entry here,
//! which makes it a deliberate decision.

use cargo_metadata::{DependencyKind, Metadata};

use super::Findings;

/// Allowed dependencies by crate. Rows and entries that are no longer used are errors.
const ALLOWED: &[(&str, &[&str])] = &[
    ("tidegate-core", &[]),
    ("tidegate-memory", &["tidegate-core"]),
    ("tidegate-redis", &["tidegate-core"]),
    ("tidegate-shard", &["tidegate-core"]),
    ("tidegate-durable", &["tidegate-core", "tidegate-shard"]),
    ("tidegate-replay", &["tidegate-core"]),
    ("tidegate", &["tidegate-core", "tidegate-memory", "tidegate-redis"]),
    ("tidegate-http", &["tidegate", "tidegate-core"]),
    ("tidegate-ws", &["tidegate", "tidegate-core", "tidegate-http"]),
    ("tidegate-providers", &["tidegate-core"]),
    ("tidegate-llm", &["tidegate", "tidegate-core", "tidegate-providers"]),
    (
        "tidegate-gateway",
        &["tidegate-llm", "tidegate-providers", "tidegate-http", "tidegate", "tidegate-core"],
    ),
    (
        "tidegate-config",
        &["tidegate", "tidegate-core", "tidegate-http", "tidegate-llm", "tidegate-providers"],
    ),
    (
        "tidegate-server",
        &[
            "tidegate-core",
            "tidegate-memory",
            "tidegate-redis",
            "tidegate-durable",
            "tidegate",
            "tidegate-http",
            "tidegate-ws",
            "tidegate-providers",
            "tidegate-llm",
            "tidegate-gateway",
            "tidegate-config",
        ],
    ),
    (
        "tidegate-cli",
        &["tidegate-server", "tidegate-config", "tidegate-replay", "tidegate-sim", "tidegate-core"],
    ),
    ("tidegate-sim", &[]),
    ("tidegate-testkit", &["tidegate-core"]),
];

/// Tools and examples; they may use all of our crates.
const TOOLS: &[&str] = &["tidegate-bench", "tidegate-examples", "tidegate-fuzz", "xtask"];

/// Crates that all tests may use: the testkit, the provider simulator, the stores, and the facade,
/// whose paths examples use.
const ALLOWED_IN_TESTS: &[&str] =
    &["tidegate-testkit", "tidegate-memory", "tidegate-redis", "tidegate-sim", "tidegate"];

/// Dependencies that users choose by a feature.
const OPTIONAL: &[(&str, &str)] = &[("tidegate", "tidegate-redis")];

/// A dependency between two members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    from: String,
    to: String,
    tests_only: bool,
    is_optional: bool,
}

impl Dependency {
    /// Whether it needs no entry, because only tests use it.
    fn is_test_only(&self) -> bool {
        self.tests_only && ALLOWED_IN_TESTS.contains(&self.to.as_str())
    }

    /// Whether every user would get it although it is a choice.
    fn must_be_optional(&self) -> bool {
        let ends = (self.from.as_str(), self.to.as_str());
        OPTIONAL.contains(&ends) && !self.is_optional && !self.tests_only
    }
}

/// A member and its dependencies on other members.
#[derive(Debug)]
pub(super) struct MemberDependencies {
    name: String,
    dependencies: Vec<Dependency>,
}

/// The dependencies between the members of the workspace.
pub(super) fn dependencies(metadata: &Metadata) -> Vec<MemberDependencies> {
    let members = metadata.workspace_packages();
    let is_member = |name: &str| members.iter().any(|member| member.name.as_str() == name);
    let uses = |package: &&cargo_metadata::Package| MemberDependencies {
        name: package.name.to_string(),
        dependencies: package
            .dependencies
            .iter()
            .filter(|dependency| dependency.path.is_some() && is_member(&dependency.name))
            .map(|dependency| Dependency {
                from: package.name.to_string(),
                to: dependency.name.clone(),
                tests_only: dependency.kind == DependencyKind::Development,
                is_optional: dependency.optional,
            })
            .collect(),
    };
    members.iter().map(uses).collect()
}

/// Checks that every member has a row, every dependency is in its row, and every entry is used.
pub(super) fn check(members: &[MemberDependencies], findings: &mut Findings) {
    check_used(ALLOWED, members, findings);
    check_allowed(members, findings);
}

fn check_allowed(members: &[MemberDependencies], findings: &mut Findings) {
    for member in members {
        if TOOLS.contains(&member.name.as_str()) {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == member.name) else {
            findings.error(
                &member.name,
                "no row in the table of dependencies (xtask/src/tidy/dependencies.rs). A new crate is a \
                 design decision: add a row there and an entry in ARCHITECTURE.md",
            );
            continue;
        };
        for dependency in &member.dependencies {
            if dependency.must_be_optional() {
                findings.error(
                    &dependency.from,
                    format!("must not need {}: make it optional, with a feature", dependency.to),
                );
            }
            if dependency.is_test_only() || allowed.contains(&dependency.to.as_str()) {
                continue;
            }
            let may =
                if allowed.is_empty() { "none of our crates".into() } else { allowed.join(", ") };
            findings.error(
                &dependency.from,
                format!(
                    "must not depend on {}; it may use {may}{}. Reverse the dependency, pass the \
                     value as an argument, or move the code to a crate that both may use",
                    dependency.to,
                    if dependency.tests_only { ", and the testkit in tests" } else { "" },
                ),
            );
        }
    }
}

fn check_used(table: &[(&str, &[&str])], members: &[MemberDependencies], findings: &mut Findings) {
    let place = "xtask/src/tidy/dependencies.rs";
    for (name, allowed) in table {
        let Some(member) = members.iter().find(|member| member.name == *name) else {
            findings.error(place, format!("crate {name} does not exist. Remove its row"));
            continue;
        };
        for to in *allowed {
            let uses = |dependency: &Dependency| dependency.to == *to && !dependency.is_test_only();
            if !member.dependencies.iter().any(uses) {
                findings.error(
                    place,
                    format!("{name} does not depend on {to}. Remove the entry from its row"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(name: &str, dependencies: &[(&str, bool)]) -> MemberDependencies {
        let dependency = |&(to, tests_only): &(&str, bool)| Dependency {
            from: name.to_owned(),
            to: to.to_owned(),
            tests_only,
            is_optional: false,
        };
        MemberDependencies {
            name: name.to_owned(),
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }

    fn errors(name: &str, dependencies: &[(&str, bool)]) -> Vec<String> {
        let mut findings = Findings::default();
        check_allowed(&[uses(name, dependencies)], &mut findings);
        findings.errors
    }

    /// Errors for a table if crate `a` has these dependencies.
    fn unused(table: &[(&str, &[&str])], dependencies: &[(&str, bool)]) -> Vec<String> {
        let mut findings = Findings::default();
        check_used(table, &[uses("a", dependencies)], &mut findings);
        findings.errors
    }

    #[test]
    fn allowed_dependencies_pass() {
        assert!(
            errors("tidegate", &[("tidegate-core", false), ("tidegate-memory", false)]).is_empty()
        );
        assert!(errors("tidegate-core", &[("tidegate-testkit", true)]).is_empty());
        assert!(errors("tidegate-redis", &[("tidegate-memory", true)]).is_empty());
        assert!(errors("tidegate-bench", &[("tidegate-memory", false)]).is_empty());
    }

    #[test]
    fn other_dependencies_fail() {
        let found = errors("tidegate-core", &[("tidegate-memory", false)]);
        assert!(found[0].contains("must not depend on tidegate-memory"), "{found:?}");
        assert_eq!(errors("tidegate-sim", &[("tidegate-core", false)]).len(), 1);
        assert_eq!(errors("tidegate-server", &[("tidegate-testkit", false)]).len(), 1);
        assert_eq!(errors("tidegate-memory", &[("tidegate-server", true)]).len(), 1);
    }

    #[test]
    fn a_shared_backend_is_optional() {
        let found = errors("tidegate", &[("tidegate-core", false), ("tidegate-redis", false)]);
        assert_eq!(found.len(), 1, "{found:?}");
        let mut member = uses("tidegate", &[("tidegate-redis", false)]);
        member.dependencies[0].is_optional = true;
        let mut findings = Findings::default();
        check_allowed(&[member], &mut findings);
        assert_eq!(findings.errors, [""; 0]);
    }

    #[test]
    fn a_crate_without_a_row_fails() {
        assert_eq!(errors("tidegate-extras", &[]).len(), 1);
    }

    #[test]
    fn rows_without_a_crate_and_unused_entries_fail() {
        assert!(unused(&[("a", &["b"])], &[("b", false), ("c", false)]).is_empty());
        assert!(
            unused(&[("a", &["b"])], &[("b", true)]).is_empty(),
            "the dependency may be for tests only"
        );
        let found = unused(&[("a", &["b"])], &[("c", false)]);
        assert!(found[0].contains("a does not depend on b"), "{found:?}");
        assert_eq!(unused(&[("a", &["tidegate-sim"])], &[("tidegate-sim", true)]).len(), 1);
        let found = unused(&[("a", &[]), ("gone", &["a"])], &[]);
        assert!(found[0].contains("crate gone does not exist") && found.len() == 1, "{found:?}");
    }

    #[test]
    fn the_table_has_no_cycle() {
        for (index, (name, allowed)) in ALLOWED.iter().enumerate() {
            for to in *allowed {
                let place = ALLOWED.iter().position(|(row, _)| row == to).unwrap();
                let later = *to == "tidegate-sim";
                assert!(place < index || later, "{name} -> {to} is not in order");
            }
        }
    }
}
