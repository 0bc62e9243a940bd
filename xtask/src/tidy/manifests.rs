//! Rules for the manifests of the members, and their presence in ARCHITECTURE.md.

use toml::{Table, Value};

use super::{Findings, Member, TextFile};

/// Library crates support an older Rust version than the program.
const LIBRARIES: &[&str] = &["tidegate-core", "tidegate-memory", "tidegate", "tidegate-http"];
const LIBRARY_VERSION: &str = "1.85";
const PROGRAM_VERSION: &str = "1.90";

/// The crate that may contain unsafe code. A lint that the workspace forbids cannot be allowed
/// again, so this crate has a copy of the lints.
const UNSAFE_CRATE: &str = "tidegate-memory";

/// Crates without I/O, so that their users choose the runtime.
const WITHOUT_RUNTIME: &[&str] = &["tidegate-core", "tidegate-providers", "tidegate-shard"];
/// Name prefixes of async runtimes and of crates that need one.
const RUNTIMES: &[&str] = &["tokio", "tower", "hyper", "futures", "async"];

/// Checks every manifest. `root` is the manifest of the workspace.
pub(super) fn check(members: &[Member], root: &Table, findings: &mut Findings) {
    for member in members {
        let place = format!("{}/Cargo.toml", member.folder);
        check_folder(member, &place, findings);
        if member.name == UNSAFE_CRATE {
            check_own_lints(member, root, &place, findings);
        } else {
            check_lints(member, &place, findings);
        }
        check_rust_version(member, &place, findings);
        for (table, prefix) in dependency_tables(&member.manifest) {
            check_versions(table, &place, &prefix, findings);
            if WITHOUT_RUNTIME.contains(&member.name.as_str()) && !prefix.contains("dev-") {
                check_runtimes(table, &place, findings);
            }
        }
    }
}

/// Checks that ARCHITECTURE.md names every crate.
pub(super) fn check_map(members: &[Member], files: &[TextFile], findings: &mut Findings) {
    let map = files.iter().find(|file| file.path == "ARCHITECTURE.md");
    let text = map.map_or("", |file| file.text.as_str());
    for member in members.iter().filter(|member| is_crate(member)) {
        if !text.contains(&format!("`{}`", member.name)) {
            findings.error(
                "ARCHITECTURE.md",
                format!("does not name the crate `{}`. Add it", member.name),
            );
        }
    }
}

/// The `rust-version` of a manifest, as (major, minor).
pub(super) fn rust_version(manifest: &Table) -> Option<(u32, u32)> {
    let mut parts = declared_rust_version(manifest)?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn declared_rust_version(manifest: &Table) -> Option<&str> {
    manifest.get("package")?.get("rust-version")?.as_str()
}

fn is_crate(member: &Member) -> bool {
    member.folder.starts_with("crates/")
}

fn check_folder(member: &Member, place: &str, findings: &mut Findings) {
    if is_crate(member) && member.folder != format!("crates/{}", member.name) {
        findings.error(
            place,
            format!("the crate is named {}; its folder must have the same name", member.name),
        );
    }
}

fn check_lints(member: &Member, place: &str, findings: &mut Findings) {
    let lints = member.manifest.get("lints").and_then(|lints| lints.get("workspace"));
    if lints.and_then(Value::as_bool) != Some(true) {
        findings.error(
            place,
            "does not inherit the lints of the workspace. Add:\n    [lints]\n    workspace = true",
        );
    }
}

/// Checks that the copy of the lints differs from the workspace only in what unsafe code needs.
fn check_own_lints(member: &Member, root: &Table, place: &str, findings: &mut Findings) {
    let lints = |of: Option<&Value>| of.and_then(|of| of.get("lints")).cloned();
    let mut expected = lints(root.get("workspace")).unwrap_or(Value::Table(Table::new()));
    for (tool, lint, level) in
        [("rust", "unsafe_code", "deny"), ("clippy", "undocumented_unsafe_blocks", "warn")]
    {
        if let Some(table) = expected.get_mut(tool).and_then(Value::as_table_mut) {
            table.insert(lint.to_owned(), level.into());
        }
    }
    if member.manifest.get("lints") != Some(&expected) {
        findings.error(
            place,
            "[lints] must be [workspace.lints] of the root, with `unsafe_code = \"deny\"` and \
             clippy's `undocumented_unsafe_blocks = \"warn\"`. Copy the changes from there",
        );
    }
}

fn check_rust_version(member: &Member, place: &str, findings: &mut Findings) {
    if !is_crate(member) {
        return;
    }
    let library = LIBRARIES.contains(&member.name.as_str());
    let expected = if library { LIBRARY_VERSION } else { PROGRAM_VERSION };
    if declared_rust_version(&member.manifest) != Some(expected) {
        findings.error(
            place,
            format!("must have rust-version = \"{expected}\", which clippy then checks"),
        );
    }
}

/// All tables of dependencies with their names, including those of targets.
fn dependency_tables(manifest: &Table) -> Vec<(&Table, String)> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let targets = targets.filter_map(|(name, value)| Some((value.as_table()?, name.as_str())));
    let mut tables = Vec::new();
    for (parent, target) in targets.chain([(manifest, "")]) {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(table) = parent.get(kind).and_then(Value::as_table) else { continue };
            let dot = if target.is_empty() { "" } else { "." };
            tables.push((table, format!("{target}{dot}{kind}")));
        }
    }
    tables
}

fn check_versions(table: &Table, place: &str, prefix: &str, findings: &mut Findings) {
    for (name, value) in table {
        let inherited = value.get("workspace").and_then(Value::as_bool) == Some(true);
        if !inherited {
            findings.error(
                place,
                format!(
                    "[{prefix}] {name} has its own version. Versions belong in \
                     [workspace.dependencies] of the root; write {name}.workspace = true"
                ),
            );
        }
    }
}

fn check_runtimes(table: &Table, place: &str, findings: &mut Findings) {
    let is_runtime = |name: &&String| RUNTIMES.iter().any(|start| name.starts_with(start));
    for name in table.keys().filter(is_runtime) {
        findings.error(
            place,
            format!(
                "must not depend on {name}: the crate does no I/O and must not choose a runtime"
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
        [package]
        name = 'tidegate-core'
        rust-version = '1.85'
        [dependencies]
        smallvec.workspace = true
        thiserror = { workspace = true, features = ['std'] }
        [lints]
        workspace = true";

    const ROOT: &str = "
        [workspace.lints.rust]
        unsafe_code = 'forbid'
        missing_docs = 'warn'
        [workspace.lints.clippy]
        todo = 'warn'";

    fn member(name: &str, folder: &str, manifest: &str) -> Member {
        let manifest = manifest.parse().unwrap();
        Member { name: name.to_owned(), folder: folder.to_owned(), manifest }
    }

    fn errors(name: &str, folder: &str, manifest: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check(&[member(name, folder, manifest)], &ROOT.parse().unwrap(), &mut findings);
        findings.errors
    }

    fn core(manifest: &str) -> Vec<String> {
        errors("tidegate-core", "crates/tidegate-core", manifest)
    }

    #[test]
    fn a_good_manifest_passes() {
        assert_eq!(core(GOOD), [] as [String; 0]);
    }

    #[test]
    fn folder_and_crate_have_one_name() {
        assert_eq!(errors("tidegate-core", "crates/core", GOOD).len(), 1);
        assert!(errors("tidegate-core", "tools/core", GOOD).is_empty());
    }

    #[test]
    fn lints_are_those_of_the_workspace() {
        let found = core(&GOOD.replace("workspace = true\"", "").replace("[lints]", "[other]"));
        assert!(found[0].contains("does not inherit the lints"), "{found:?}");
    }

    #[test]
    fn the_crate_that_may_be_unsafe_keeps_all_other_lints() {
        let memory = |lints: &str| {
            let manifest = format!("package.rust-version = '1.85'\n{lints}");
            errors("tidegate-memory", "crates/tidegate-memory", &manifest)
        };
        let copy = "
            [lints.rust]
            unsafe_code = 'deny'
            missing_docs = 'warn'
            [lints.clippy]
            todo = 'warn'
            undocumented_unsafe_blocks = 'warn'";
        assert_eq!(memory(copy), [] as [String; 0]);
        assert_eq!(memory(&copy.replace("'deny'", "'allow'")).len(), 1);
        assert_eq!(memory(&copy.replace("todo = 'warn'", "")).len(), 1);
        assert_eq!(memory(&copy.replace("missing_docs = 'warn'", "")).len(), 1);
        assert_eq!(memory("lints.workspace = true").len(), 1);
    }

    #[test]
    fn the_rust_version_is_the_expected_one() {
        assert_eq!(core(&GOOD.replace("1.85", "1.86")).len(), 1);
        assert_eq!(core(&GOOD.replace("rust-version = '1.85'", "")).len(), 1);
        let server = |manifest: &str| errors("tidegate-server", "crates/tidegate-server", manifest);
        assert_eq!(server(GOOD).len(), 1);
        assert!(server(&GOOD.replace("1.85", "1.90")).is_empty());
        assert_eq!(rust_version(&GOOD.parse().unwrap()), Some((1, 85)));
    }

    #[test]
    fn versions_are_in_the_root_manifest_only() {
        for line in [
            "[dev-dependencies]\nproptest = '1'",
            "[build-dependencies]\ncc = { version = '1' }",
            "[target.'cfg(unix)'.dependencies]\nlibc = '0.2'",
            "[dev-dependencies]\ntidegate = { path = '../tidegate' }",
        ] {
            let found = core(&format!("{GOOD}\n{line}"));
            assert_eq!(found.len(), 1, "{line}");
            assert!(found[0].contains("has its own version"), "{found:?}");
        }
    }

    #[test]
    fn crates_without_io_have_no_runtime() {
        let with = |kind: &str, name: &str| {
            core(&GOOD.replace("[lints]", &format!("[{kind}]\n{name}.workspace = true\n[lints]")))
        };
        for name in ["tokio", "tower-service", "hyper-util"] {
            let found = with("target.'cfg(unix)'.dependencies", name);
            assert!(found[0].contains(&format!("must not depend on {name}")), "{found:?}");
            assert!(with("dev-dependencies", name).is_empty());
        }
        let llm = GOOD.replace("1.85", "1.90").replace("smallvec", "tokio");
        assert!(errors("tidegate-llm", "crates/tidegate-llm", &llm).is_empty());
    }

    #[test]
    fn architecture_names_every_crate() {
        let map = |text: &str| {
            let file = TextFile { path: "ARCHITECTURE.md".into(), text: text.into() };
            let members =
                [member("tidegate", "crates/tidegate", GOOD), member("xtask", "xtask", GOOD)];
            let mut findings = Findings::default();
            check_map(&members, &[file], &mut findings);
            findings.errors.len()
        };
        assert_eq!(map("the crate `tidegate` does"), 0);
        assert_eq!(map("the crate `tidegate-core` does"), 1);
    }
}
