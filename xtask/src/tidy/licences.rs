//! Licences of everything we are built from: permissive ones, so that users are free.

use cargo_metadata::Metadata;

use super::Findings;

/// Licences under which a dependency may be used. Public-domain dedications such as CC0-1.0 and
/// 0BSD are not here: they pass as one side of an OR whose other side is.
const ALLOWED: &[&str] =
    &["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "MPL-2.0", "Unicode-3.0"];

/// A package that is not ours.
#[derive(Debug)]
pub(super) struct ExternalPackage {
    name: String,
    licence: Option<String>,
}

/// All packages from outside of the workspace.
pub(super) fn external(metadata: &Metadata) -> Vec<ExternalPackage> {
    let outside = metadata.packages.iter().filter(|package| package.source.is_some());
    outside
        .map(|package| ExternalPackage {
            name: format!("{} {}", package.name, package.version),
            licence: package.license.clone(),
        })
        .collect()
}

/// Every package says what its licence is, and the licence is allowed.
pub(super) fn check(packages: &[ExternalPackage], findings: &mut Findings) {
    for package in packages {
        match package.licence.as_deref() {
            None => findings.error(
                &package.name,
                "names no licence. Nobody may use what has none; take another crate",
            ),
            Some(text) => match is_allowed(text) {
                Some(true) => {}
                Some(false) => findings.error(
                    &package.name,
                    format!(
                        "its licence {text:?} is not among {}. Take another crate, or extend \
                         the list in xtask/src/tidy/licences.rs if the terms ask nothing of users",
                        ALLOWED.join(", ")
                    ),
                ),
                None => findings.error(
                    &package.name,
                    format!("its licence {text:?} is not an expression of SPDX names"),
                ),
            },
        }
    }
}

/// Whether an SPDX expression can be met with allowed licences; `None` if it is not one.
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
    fn expressions_that_can_be_met_pass() {
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
    fn expressions_that_cannot_be_met_fail() {
        for text in [
            "CC0-1.0",
            "0BSD",
            "Unlicense",
            "AGPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "MIT AND (GPL-2.0-only OR LGPL-3.0-only)",
            "GPL-2.0-only WITH Classpath-exception-2.0",
            // AND binds tighter than OR: only the right reading is refused.
            "GPL-3.0-only OR MIT AND GPL-3.0-only",
        ] {
            assert_eq!(is_allowed(text), Some(false), "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_told_apart() {
        for text in ["", "MIT OR", "(MIT", "MIT Apache-2.0", "OR MIT", "MIT WITH"] {
            assert_eq!(is_allowed(text), None, "{text}");
        }
        let mut findings = Findings::default();
        check(&[ExternalPackage { name: "x 1.0.0".into(), licence: None }], &mut findings);
        assert!(findings.errors[0].contains("names no licence"));
    }
}
