//! Which of our crates may depend on which.
//!
//! The table is the architecture: a crate that is not in it does not belong to the workspace, and
//! an arrow that is not in it is a decision that nobody has taken.

use cargo_metadata::{DependencyKind, Metadata};

use super::Findings;

/// Allowed arrows. A row whose crate does not exist and an arrow that no manifest uses are findings.
const ALLOWED: &[(&str, &[&str])] = &[
    ("tidegate-core", &[]),
    ("tidegate-memory", &["tidegate-core"]),
    ("tidegate-redis", &["tidegate-core"]),
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
            "tidegate",
            "tidegate-http",
            "tidegate-ws",
            "tidegate-providers",
            "tidegate-llm",
            "tidegate-gateway",
            "tidegate-config",
        ],
    ),
    ("tidegate-cli", &["tidegate-server", "tidegate-config"]),
    ("tidegate-sim", &[]),
    ("tidegate-testkit", &["tidegate-core"]),
];

/// Tools and examples around the product; they may use anything of ours.
const TOOLS: &[&str] = &["tidegate-bench", "tidegate-examples", "tidegate-fuzz", "xtask"];

/// What tests may use on top of the arrows: the testkit, the simulator of providers, the stores that
/// something is compared with or run on, and the facade, whose paths are those of examples.
const ALLOWED_IN_TESTS: &[&str] =
    &["tidegate-testkit", "tidegate-memory", "tidegate-redis", "tidegate-sim", "tidegate"];

/// An arrow between two members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    from: String,
    to: String,
    tests_only: bool,
}

impl Dependency {
    /// Whether it needs no row, because only tests use it.
    fn is_test_only(&self) -> bool {
        self.tests_only && ALLOWED_IN_TESTS.contains(&self.to.as_str())
    }
}

/// One member and the members that it uses.
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
            })
            .collect(),
    };
    members.iter().map(uses).collect()
}

/// Every member has a row, every arrow is in its row, and the table allows no more than that.
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
                "no row in the table of arrows (xtask/src/tidy/arrows.rs). A new crate is a \
                 decision: give it a row there and a place in ARCHITECTURE.md",
            );
            continue;
        };
        for dependency in &member.dependencies {
            if dependency.is_test_only() || allowed.contains(&dependency.to.as_str()) {
                continue;
            }
            let may =
                if allowed.is_empty() { "nothing of ours".into() } else { allowed.join(", ") };
            findings.error(
                &dependency.from,
                format!(
                    "must not depend on {}; it may use {may}{}. Turn the arrow around, pass the \
                     thing in as an argument, or move it to the crate that both may use",
                    dependency.to,
                    if dependency.tests_only { ", and the testkit in tests" } else { "" },
                ),
            );
        }
    }
}

fn check_used(table: &[(&str, &[&str])], members: &[MemberDependencies], findings: &mut Findings) {
    let place = "xtask/src/tidy/arrows.rs";
    for (name, allowed) in table {
        let Some(member) = members.iter().find(|member| member.name == *name) else {
            findings.error(place, format!("there is no crate {name}. Remove its row"));
            continue;
        };
        for to in *allowed {
            let uses = |dependency: &Dependency| dependency.to == *to && !dependency.is_test_only();
            if !member.dependencies.iter().any(uses) {
                findings.error(
                    place,
                    format!("{name} does not depend on {to}. Remove the arrow from its row"),
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

    /// What is found of a table when crate `a` uses these.
    fn unused(table: &[(&str, &[&str])], dependencies: &[(&str, bool)]) -> Vec<String> {
        let mut findings = Findings::default();
        check_used(table, &[uses("a", dependencies)], &mut findings);
        findings.errors
    }

    #[test]
    fn arrows_of_the_table_pass() {
        assert!(
            errors("tidegate", &[("tidegate-core", false), ("tidegate-memory", false)]).is_empty()
        );
        assert!(errors("tidegate-core", &[("tidegate-testkit", true)]).is_empty());
        assert!(errors("tidegate-redis", &[("tidegate-memory", true)]).is_empty());
        assert!(errors("tidegate-bench", &[("tidegate-memory", false)]).is_empty());
    }

    #[test]
    fn other_arrows_fail() {
        let found = errors("tidegate-core", &[("tidegate-memory", false)]);
        assert!(found[0].contains("must not depend on tidegate-memory"), "{found:?}");
        assert_eq!(errors("tidegate-sim", &[("tidegate-core", false)]).len(), 1);
        assert_eq!(errors("tidegate-server", &[("tidegate-testkit", false)]).len(), 1);
        assert_eq!(errors("tidegate-memory", &[("tidegate-server", true)]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_fails() {
        assert_eq!(errors("tidegate-extras", &[]).len(), 1);
    }

    #[test]
    fn rows_without_a_crate_and_arrows_that_nobody_uses_fail() {
        assert!(unused(&[("a", &["b"])], &[("b", false), ("c", false)]).is_empty());
        assert!(unused(&[("a", &["b"])], &[("b", true)]).is_empty(), "tests need the row as well");
        let found = unused(&[("a", &["b"])], &[("c", false)]);
        assert!(found[0].contains("a does not depend on b"), "{found:?}");
        assert_eq!(unused(&[("a", &["tidegate-sim"])], &[("tidegate-sim", true)]).len(), 1);
        let found = unused(&[("a", &[]), ("gone", &["a"])], &[]);
        assert!(found[0].contains("no crate gone") && found.len() == 1, "{found:?}");
    }

    #[test]
    fn rows_name_rows_and_make_no_circle() {
        for (index, (name, allowed)) in ALLOWED.iter().enumerate() {
            for to in *allowed {
                let place = ALLOWED.iter().position(|(row, _)| row == to).unwrap();
                let later = *to == "tidegate-sim";
                assert!(place < index || later, "{name} -> {to} points up");
            }
        }
    }
}
