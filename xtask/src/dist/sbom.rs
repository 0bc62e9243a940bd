//! The software bill of materials: what is linked into the program, as CycloneDX 1.5 JSON.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use cargo_metadata::Package;
use serde_json::{Value, json};

use super::Release;
use super::linked::{Linked, is_ours};
use crate::project;

/// Returns the document.
pub(super) fn document(linked: &Linked, release: &Release) -> Result<String> {
    let sums = checksums(&fs::read_to_string(project::root().join("Cargo.lock"))?)?;
    let is_program = |package: &&Package| package.name == super::build::PACKAGE;
    let program = linked.packages().find(is_program).context("the program is not in its tree")?;
    let others = || linked.packages().filter(|package| !is_program(package));
    let components: Vec<_> = others().map(|package| component(package, &sums)).collect();
    let dependencies: Vec<_> = linked
        .packages()
        .map(|package| {
            let on = linked.dependencies(package);
            json!({
                "ref": reference(package),
                "dependsOn": on.into_iter().map(reference).collect::<Vec<_>>(),
            })
        })
        .collect();
    let mut described = component(program, &sums);
    described["type"] = "application".into();
    described["name"] = "tidegate".into();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(release.epoch),
            "component": described,
            "properties": [{ "name": "tidegate:target", "value": release.target }],
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn component(package: &Package, sums: &BTreeMap<(String, String), String>) -> Value {
    let version = package.version.to_string();
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": package.name,
        "version": version,
    });
    if let Some(licence) = &package.license {
        let expression = licence.replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if !is_ours(package) {
        component["purl"] = reference(package).into();
    }
    if let Some(sum) = sums.get(&(package.name.to_string(), version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

/// The package URL, which is unique: two sources of one version are never linked.
fn reference(package: &Package) -> String {
    // A `+` of build metadata is escaped in package URLs.
    format!("pkg:cargo/{}@{}", package.name, package.version.to_string().replace('+', "%2B"))
}

/// Checksums of registry packages in the lock file, by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = toml::from_str(lock).context("Cargo.lock is invalid")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let text = |package: &toml::Value, key: &str| {
        package.get(key).and_then(toml::Value::as_str).map(str::to_owned)
    };
    let sums = packages.into_iter().flatten().filter_map(|package| {
        let sum = text(package, "checksum")?;
        Some(((text(package, "name")?, text(package, "version")?), sum))
    });
    Ok(sums.collect())
}

/// Formats seconds since 1970 as in RFC 3339.
fn timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a number of days since 1970.
fn date(mut days: u64) -> (u64, usize, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(1_798_761_599), "2026-12-31T23:59:59Z");
    }

    #[test]
    fn checksums_are_read_from_the_lock_file() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n\
                    [[package]]\nname = \"b\"\nversion = \"2.0.0\"\n";
        let sums = checksums(lock).unwrap();
        assert_eq!(sums.len(), 1);
        assert_eq!(sums[&("a".to_owned(), "1.0.0".to_owned())], "ff");
    }
}
