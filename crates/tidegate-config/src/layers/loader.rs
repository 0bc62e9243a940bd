//! From where the layers are collected: a file, an environment, flags.

use std::path::{Path as FilePath, PathBuf};

use crate::error::ConfigError;
use crate::layers::environment::Environment;
use crate::layers::file::File;
use crate::layers::flags::Flags;
use crate::layers::flags::Key;
use crate::layers::overrides::Overrides;
use crate::layers::{FileLookup, Layers};
use crate::plan::Plan;
use crate::values::setting::Source;

/// Collects the layers and makes a [`Plan`] of them.
///
/// ```
/// use tidegate_config::{Key, Loader, Source};
/// let plan = Loader::default().flag(Key::ListenHttp, "127.0.0.1:0").text("in-line", "")?;
/// assert_eq!(plan.listen.http.source, Source::Flag);
/// assert_eq!(plan.listen.grpc.source, Source::Default);
/// # Ok::<(), tidegate_config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a plan is made by `load`"]
pub struct Loader {
    file: Option<PathBuf>,
    working_dir: PathBuf,
    environment: Environment,
    flags: Flags,
}

impl Loader {
    /// Reads this file, which must be there, instead of looking for one.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Looks for `tidegate.toml` here first. Default: the working directory of the process.
    pub fn working_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.working_dir = path.into();
        self
    }

    /// Adds variables of the environment. Names that are not ours are passed over.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(variables);
        self
    }

    /// Adds a flag of the command line. Of two for one key the later counts.
    pub fn flag(mut self, key: Key, value: impl Into<String>) -> Self {
        self.flags.set(key, value.into());
        self
    }

    /// The layers, with the file that was named or else the first one found, and without a
    /// database.
    ///
    /// # Errors
    /// When the file cannot be read. What is wrong in it is told by [`Layers::plan`].
    pub fn layers(self) -> Result<Layers, ConfigError> {
        let lookup = match &self.file {
            Some(path) => FileLookup::Named(path.clone()),
            None => FileLookup::Search(self.working_dir.clone()),
        };
        let file = lookup.read(&self.environment)?;
        Ok(self.into_layers(lookup, file))
    }

    /// The layers, with a text in place of a file; `name` stands for the file in errors.
    #[must_use]
    pub fn text_layers(self, name: impl AsRef<FilePath>, text: &str) -> Layers {
        let file = File { path: name.as_ref().to_owned(), text: text.to_owned() };
        self.into_layers(FileLookup::Text, Some(file))
    }

    /// The plan, from the file that was named or else the first one found.
    ///
    /// # Errors
    /// When the file cannot be read, or with everything that is wrong in any layer.
    pub fn load(self) -> Result<Plan, ConfigError> {
        self.layers()?.plan()
    }

    /// The plan, from a text in place of a file; `name` stands for the file in errors.
    ///
    /// # Errors
    /// With everything that is wrong in any layer.
    pub fn text(self, name: impl AsRef<FilePath>, text: &str) -> Result<Plan, ConfigError> {
        self.text_layers(name, text).plan()
    }

    fn into_layers(self, lookup: FileLookup, file: Option<File>) -> Layers {
        let Self { environment, flags, .. } = self;
        let (overrides, overridden_by) = (Overrides::new(), Source::Database);
        Layers { lookup, file, environment, overrides, overridden_by, flags }
    }
}
