//! Licence texts of everything that is linked into the program, in one file.
//!
//! Texts come from the sources of each crate, also those of bundled C code. A crate without any
//! gets the standard text of its licence; if there is none here, that is an error.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::Package;

use super::linked::Linked;
use crate::process;
use crate::project;

/// Beginnings of the names of files with licences, in lower case.
const NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "unlicense", "notice"];

/// Endings of files that are no texts but sources with such a name.
const SOURCES: [&str; 6] = ["rs", "c", "h", "py", "toml", "html"];

/// How deep bundled sources are below the folder of a crate.
const MAX_DEPTH: usize = 4;

const MIT: &str = "Permission is hereby granted, free of charge, to any person obtaining a copy of \
    this software and associated documentation files (the \"Software\"), to deal in the Software \
    without restriction, including without limitation the rights to use, copy, modify, merge, \
    publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to \
    whom the Software is furnished to do so, subject to the following conditions:\n\n\
    The above copyright notice and this permission notice shall be included in all copies or \
    substantial portions of the Software.\n\n\
    THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, \
    INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR \
    PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR \
    ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, \
    ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE \
    SOFTWARE.\n";

const BSD_3_CLAUSE: &str = "Redistribution and use in source and binary forms, with or without \
    modification, are permitted provided that the following conditions are met:\n\n\
    1. Redistributions of source code must retain the above copyright notice, this list of \
    conditions and the following disclaimer.\n\n\
    2. Redistributions in binary form must reproduce the above copyright notice, this list of \
    conditions and the following disclaimer in the documentation and/or other materials provided \
    with the distribution.\n\n\
    3. Neither the name of the copyright holder nor the names of its contributors may be used to \
    endorse or promote products derived from this software without specific prior written \
    permission.\n\n\
    THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS \"AS IS\" AND ANY EXPRESS \
    OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY \
    AND FITNESS FOR A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR \
    CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR \
    CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR \
    SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY \
    THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR \
    OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS SOFTWARE, EVEN IF ADVISED OF THE \
    POSSIBILITY OF SUCH DAMAGE.\n";

/// Returns the document: each distinct text once, after the names of the crates that it is for.
pub(super) fn document(linked: &Linked) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in linked.external() {
        let name = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref().unwrap_or("see its text");
        writeln!(list, "{name}: {licence}")?;
        for text in texts_of(package)? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for text in standard_library()? {
        texts.entry(text).or_default().push("the standard library of Rust".to_owned());
    }
    let mut by_names: Vec<_> = texts.into_iter().map(|(text, names)| (names, text)).collect();
    by_names.sort();
    let mut document = format!(
        "Tidegate contains the following libraries. Their licence texts follow. SQLite, which \
         libsqlite3-sys contains, is in the public domain.\n\n{list}the standard library of Rust: \
         MIT OR Apache-2.0\n"
    );
    let line = "=".repeat(80);
    for (names, text) in by_names {
        write!(document, "\n{line}\n{}\n{line}\n\n{text}\n", names.join(", "))?;
    }
    Ok(document)
}

/// Returns the licence texts of a package.
fn texts_of(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest without a folder")?;
    let mut files = Vec::new();
    find(folder.as_std_path(), MAX_DEPTH, &mut files)?;
    files.extend(package.license_file().map(|file| folder.join(file).into_std_path_buf()));
    files.sort();
    files.dedup();
    let mut texts = Vec::new();
    for file in files {
        let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        // Line ends differ between copies of the same text.
        let text = String::from_utf8_lossy(&text).replace("\r\n", "\n");
        texts.push(text.trim_end().to_owned());
    }
    texts.retain(|text| !text.is_empty());
    if texts.is_empty() {
        texts.push(standard_text(package)?);
    }
    Ok(texts)
}

/// Finds files with licences, by name.
fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if depth > 0 {
                find(&path, depth - 1, files)?;
            }
        } else if is_licence(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    NAMES.iter().any(|known| name.starts_with(known)) && !SOURCES.contains(&ending.as_str())
}

/// Returns the standard text for a crate that ships none, by its licence expression.
fn standard_text(package: &Package) -> Result<String> {
    let Some(expression) = &package.license else {
        bail!("{} {} has neither a licence nor a licence text", package.name, package.version);
    };
    let authors = match package.authors.as_slice() {
        [] => format!("the authors of {}", package.name),
        authors => authors.join(", "),
    };
    let alternatives: Vec<&str> = expression.split(" OR ").flat_map(|one| one.split('/')).collect();
    let has = |licence: &str| alternatives.iter().any(|one| one.trim() == licence);
    if has("MIT") {
        Ok(format!("MIT License\n\nCopyright (c) {authors}\n\n{MIT}"))
    } else if has("BSD-3-Clause") {
        Ok(format!("Copyright (c) {authors}\n\n{BSD_3_CLAUSE}"))
    } else if has("Apache-2.0") {
        Ok(fs::read_to_string(project::root().join("LICENSE-APACHE"))?)
    } else {
        bail!(
            "{} {} ships no licence text, and there is no standard text for {expression}; add it \
             to xtask/src/dist/licences.rs",
            package.name,
            package.version
        )
    }
}

/// Returns the licence texts of the standard library, which the toolchain ships.
fn standard_library() -> Result<Vec<String>> {
    let mut command = std::process::Command::new("rustc");
    command.args(["--print", "sysroot"]);
    let root = PathBuf::from(process::read(command)?.trim());
    let known = root.join("share/doc/rust/licenses");
    let texts = ["MIT.txt", "Apache-2.0.txt"].map(|name| fs::read_to_string(known.join(name)));
    let texts: Vec<_> = texts.into_iter().flatten().collect();
    if texts.is_empty() {
        // Some toolchains are installed without documents. The texts are the same for all crates.
        return Ok(vec![
            format!("MIT License\n\nCopyright (c) The Rust Project Contributors\n\n{MIT}"),
            fs::read_to_string(project::root().join("LICENSE-APACHE"))?,
        ]);
    }
    Ok(texts.into_iter().map(|text| text.trim_end().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_files_are_recognized_by_name() {
        for name in ["LICENSE", "LICENSE-MIT", "License.txt", "COPYING", "UNLICENSE", "NOTICE.md"] {
            assert!(is_licence(Path::new(name)), "{name}");
        }
        for name in ["licenses.rs", "README.md", "copyright.h", "license.toml"] {
            assert!(!is_licence(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_crate_without_a_text_gets_that_of_its_licence_or_is_named() {
        let package = |licence: &str| -> Package {
            let value = serde_json::json!({
                "name": "tide", "version": "1.0.0", "id": "tide", "license": licence,
                "dependencies": [], "targets": [], "features": {},
                "manifest_path": "/none/Cargo.toml", "authors": ["A. Tide"],
            });
            serde_json::from_value(value).unwrap()
        };
        assert!(standard_text(&package("Zlib/MIT")).unwrap().contains("(c) A. Tide"));
        assert!(standard_text(&package("ISC OR Apache-2.0")).unwrap().contains("Apache License"));
        let error = standard_text(&package("ISC")).unwrap_err().to_string();
        assert!(error.contains("tide 1.0.0") && error.contains("for ISC"), "{error}");
        // Both texts are needed.
        assert!(standard_text(&package("MIT AND BSD-3-Clause")).is_err());
    }
}
