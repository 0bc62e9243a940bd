//! Builder that collects the layers from a file, the environment and flags.

use std::path::{Path as FilePath, PathBuf};

use crate::config::Config;
use crate::error::ConfigError;
use crate::layers::environment::Environment;
use crate::layers::file::File;
use crate::layers::flags::Flags;
use crate::layers::flags::Key;
use crate::layers::overrides::Overrides;
use crate::layers::{FileLookup, Layers};
use crate::values::setting::Source;

/// Collects configuration layers and validates them into a [`Config`].
///
/// ```
/// use tidegate_config::{Key, Loader, Source};
/// let config = Loader::default().flag(Key::ListenHttp, "127.0.0.1:0").text("in-line", "")?;
/// assert_eq!(config.listen.http.source, Source::Flag);
/// assert_eq!(config.listen.grpc.source, Source::Default);
/// # Ok::<(), tidegate_config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "call `load` to read the configuration"]
pub struct Loader {
    file: Option<PathBuf>,
    working_dir: PathBuf,
    environment: Environment,
    flags: Flags,
}

impl Loader {
    /// Reads this file, which must exist, instead of searching for one.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Sets the directory in which `tidegate.toml` is searched for first. Default: the working
    /// directory of the process.
    pub fn working_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.working_dir = path.into();
        self
    }

    /// Adds environment variables. Unrelated variables are ignored.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(variables);
        self
    }

    /// Adds a command-line flag, replacing an earlier one for the same key.
    pub fn flag(mut self, key: Key, value: impl Into<String>) -> Self {
        self.flags.set(key, value.into());
        self
    }

    /// Reads the file and returns the layers, with an empty database layer.
    ///
    /// # Errors
    /// [`ConfigError::Read`] if the file cannot be read. Its content is validated by
    /// [`Layers::validate`].
    pub fn layers(self) -> Result<Layers, ConfigError> {
        let lookup = match &self.file {
            Some(path) => FileLookup::Named(path.clone()),
            None => FileLookup::Search(self.working_dir.clone()),
        };
        let file = lookup.read(&self.environment)?;
        Ok(self.into_layers(lookup, file))
    }

    /// Returns the layers with `text` in place of a file; errors refer to it as `name`.
    #[must_use]
    pub fn text_layers(self, name: impl AsRef<FilePath>, text: &str) -> Layers {
        let file = File { path: name.as_ref().to_owned(), text: text.to_owned() };
        self.into_layers(FileLookup::Text, Some(file))
    }

    /// Reads the file and validates all layers.
    ///
    /// # Errors
    /// If the file cannot be read, or any layer is invalid.
    pub fn load(self) -> Result<Config, ConfigError> {
        self.layers()?.validate()
    }

    /// Validates all layers with `text` in place of a file; errors refer to it as `name`.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with all violations of all layers.
    pub fn text(self, name: impl AsRef<FilePath>, text: &str) -> Result<Config, ConfigError> {
        self.text_layers(name, text).validate()
    }

    fn into_layers(self, lookup: FileLookup, file: Option<File>) -> Layers {
        let Self { environment, flags, .. } = self;
        let (overrides, overridden_by) = (Overrides::new(), Source::Database);
        Layers { lookup, file, environment, overrides, overridden_by, flags }
    }
}
