//! The configuration file: where it is looked for, and places in its text.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::fault::{ConfigError, Fault, Located, Origin};

const NAME: &str = "tidegate.toml";

/// The configuration that holds without a file, with every key that there is.
///
/// ```
/// let plan = tidegate_config::Loader::default().text("default", tidegate_config::DEFAULT_FILE)?;
/// assert_eq!(plan.modules.rate_limit.settings().burst().get(), 60);
/// # Ok::<(), tidegate_config::ConfigError>(())
/// ```
pub const DEFAULT_FILE: &str = include_str!("../default.toml");

/// A file that has been read.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl File {
    /// Reads a file that must be there.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path);
        let text = text.map_err(|source| ConfigError::Read { file: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// Reads the first of these files that is there.
    pub(crate) fn first(candidates: &[PathBuf]) -> Result<Option<Self>, ConfigError> {
        for path in candidates {
            match Self::read(path) {
                Err(ConfigError::Read { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                other => return other.map(Some),
            }
        }
        Ok(None)
    }

    /// Says where in this file a mistake stands.
    pub(crate) fn locate(&self, fault: Fault) -> Located {
        let position = fault.span.as_ref().map(|span| line_and_column(&self.text, span));
        Located { origin: Origin::File { file: self.path.clone(), position }, fault }
    }
}

/// Where a file is looked for when none is named.
pub(crate) fn candidates(working: &Path, environment: &[(String, String)]) -> Vec<PathBuf> {
    let mut candidates = vec![working.join(NAME)];
    let home = environment.iter().find(|(name, _)| name == "XDG_CONFIG_HOME");
    if let Some((_, home)) = home.filter(|(_, home)| Path::new(home).is_absolute()) {
        candidates.push(Path::new(home).join("tidegate").join(NAME));
    }
    candidates.push(Path::new("/etc/tidegate").join(NAME));
    candidates
}

fn line_and_column(text: &str, span: &Range<usize>) -> (usize, usize) {
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    (line, column)
}
