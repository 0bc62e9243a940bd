//! Checks that all dependencies have a permissive licence.

use cargo_metadata::Metadata;

use super::Findings;

/// Allowed licences of dependencies. Public-domain dedications such as CC0-1.0 and 0BSD are not
/// listed; they pass as alternatives to a listed licence.
const ALLOWED: &[&str] =
    &["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "MPL-2.0", "Unicode-3.0"];

/// A package from outside the workspace.
#[derive(Debug)]
pub(super) struct ExternalPackage {
    name: String,
    licence: Option<String>,
}

/// All packages from outside the workspace.
pub(super) fn external(metadata: &Metadata) -> Vec<ExternalPackage> {
    let outside = metadata.packages.iter().filter(|package| package.source.is_some());
    outside
        .map(|package| ExternalPackage {
            name: format!("{} {}", package.name, package.version),
            licence: package.license.clone(),
        })
        .collect()
}

/// Checks that every package declares an allowed licence.
pub(super) fn check(packages: &[ExternalPackage], findings: &mut Findings) {
    for package in packages {
        match package.licence.as_deref() {
            None => findings.error(&package.name, "declares no licence. Use another crate"),
            Some(text) => match is_allowed(text) {
                Some(true) => {}
                Some(false) => findings.error(
                    &package.name,
                    format!(
                        "its licence {text:?} is not among {}. Use another crate, or extend \
                         the list in xtask/src/tidy/licences.rs if the licence is permissive",
                        ALLOWED.join(", ")
                    ),
                ),
                None => findings.error(
                    &package.name,
                    format!("its licence {text:?} is not a valid SPDX expression"),
                ),
            },
        }
    }
}

/// Whether allowed licences satisfy an SPDX expression; `None` if it is invalid.
///
/// `WITH` binds tightest, then `AND`, then `OR`. An exception only adds rights. Old manifests
/// write `/` for `OR`.
fn is_allowed(expression: &str) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words };
    let allowed = parser.or_expression()?;
    parser.words.is_empty().then_some(allowed)
}

struct Parser<'a> {
    words: &'a [&'a str],
}

impl Parser<'_> {
    fn or_expression(&mut self) -> Option<bool> {
        let mut allowed = self.and_expression()?;
        while self.accept("OR") {
            allowed |= self.and_expression()?;
        }
        Some(allowed)
    }

    fn and_expression(&mut self) -> Option<bool> {
        let mut allowed = self.licence()?;
        while self.accept("AND") {
            allowed &= self.licence()?;
        }
        Some(allowed)
    }

    fn licence(&mut self) -> Option<bool> {
        if self.accept("(") {
            let allowed = self.or_expression()?;
            return self.accept(")").then_some(allowed);
        }
        let allowed = ALLOWED.contains(&self.name()?);
        if self.accept("WITH") {
            self.name()?;
        }
        Some(allowed)
    }

    fn name(&mut self) -> Option<&str> {
        let (first, rest) = self.words.split_first()?;
        if matches!(*first, "AND" | "OR" | "WITH" | "(" | ")") {
            return None;
        }
        self.words = rest;
        Some(first)
    }

    fn accept(&mut self, word: &str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn satisfiable_expressions_pass() {
        for text in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "CC0-1.0 OR MIT-0 OR Apache-2.0",
            "0BSD OR MIT OR Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "GPL-3.0-only OR (BSD-3-Clause AND ISC)",
        ] {
            assert_eq!(is_allowed(text), Some(true), "{text}");
        }
    }

    #[test]
    fn unsatisfiable_expressions_fail() {
        for text in [
            "CC0-1.0",
            "0BSD",
            "Unlicense",
            "AGPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "MIT AND (GPL-2.0-only OR LGPL-3.0-only)",
            "GPL-2.0-only WITH Classpath-exception-2.0",
            // AND binds tighter than OR.
            "GPL-3.0-only OR MIT AND GPL-3.0-only",
        ] {
            assert_eq!(is_allowed(text), Some(false), "{text}");
        }
    }

    #[test]
    fn invalid_expressions_and_missing_licences_are_reported() {
        for text in ["", "MIT OR", "(MIT", "MIT Apache-2.0", "OR MIT", "MIT WITH"] {
            assert_eq!(is_allowed(text), None, "{text}");
        }
        let mut findings = Findings::default();
        check(&[ExternalPackage { name: "x 1.0.0".into(), licence: None }], &mut findings);
        assert!(findings.errors[0].contains("declares no licence"));
    }
}
