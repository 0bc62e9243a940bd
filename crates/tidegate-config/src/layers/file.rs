//! The configuration file: where it is searched for, and positions in its text.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{ConfigError, Origin};
use crate::layers::environment::Environment;
use crate::layers::{toml_text, yaml_text};
use crate::values::setting::Source;
use crate::values::value::Value;
use crate::violation::Violation;

const NAME: &str = "tidegate.toml";

/// The default configuration, with every key that has a fixed name.
///
/// ```
/// let config = tidegate_config::Loader::default().text("default", tidegate_config::DEFAULT_FILE)?;
/// assert_eq!(config.modules.rate_limit.requests_per_minute.value.get(), 60);
/// # Ok::<(), tidegate_config::ConfigError>(())
/// ```
pub const DEFAULT_FILE: &str = include_str!("../../default.toml");

/// Path and text of a configuration file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl File {
    /// Reads a file that must exist.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path);
        let text = text.map_err(|source| ConfigError::Read { file: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// Reads the first of these files that exists.
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

    /// Parses the text: YAML if the name of the file ends with `.yaml` or `.yml`, else TOML.
    pub(crate) fn parse(&self, violations: &mut Vec<Violation>) -> Value<'_> {
        let extension = self.path.extension().and_then(OsStr::to_str).unwrap_or_default();
        let is_yaml = ["yaml", "yml"].iter().any(|yaml| extension.eq_ignore_ascii_case(yaml));
        let parse = if is_yaml { yaml_text::parse } else { toml_text::parse };
        parse(&self.text, Source::File, violations)
    }

    /// Translates a byte offset into line and column.
    pub(crate) fn origin(&self, at: Option<usize>) -> Origin {
        let position = at.map(|at| line_and_column(&self.text, at));
        Origin::File { file: self.path.clone(), position }
    }
}

impl fmt::Debug for File {
    /// Omits the text, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns the paths where the file is searched for, in order.
pub(crate) fn candidates(working: &Path, environment: &Environment) -> Vec<PathBuf> {
    let mut candidates = vec![working.join(NAME)];
    let home = environment.get("XDG_CONFIG_HOME").map(Path::new);
    candidates.extend(
        home.filter(|home| home.is_absolute()).map(|home| home.join("tidegate").join(NAME)),
    );
    candidates.push(Path::new("/etc/tidegate").join(NAME));
    candidates
}

/// Returns the default directory for state files.
pub(crate) fn state_directory(environment: &Environment) -> PathBuf {
    let absolute = |name| environment.get(name).map(Path::new).filter(|path| path.is_absolute());
    match (absolute("XDG_STATE_HOME"), absolute("HOME")) {
        (Some(state), _) => state.join("tidegate"),
        (None, Some(home)) => home.join(".local").join("state").join("tidegate"),
        (None, None) => PathBuf::from("/var/lib/tidegate"),
    }
}

fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    (line, column)
}
