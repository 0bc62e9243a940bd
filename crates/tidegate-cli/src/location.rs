//! Loads the configuration layers from flags, environment and file.

use tidegate_config::{Key, Layers, Loader, process_environment};

use crate::args::ConfigLocation;
use crate::failure::Failure;

impl ConfigLocation {
    /// Creates a loader with the environment and these flags.
    pub(crate) fn loader(self) -> Loader {
        let mut loader = Loader::default().environment(process_environment());
        if let Some(file) = self.config {
            loader = loader.file(file);
        }
        if let Some(url) = self.database {
            loader = loader.flag(Key::DatabaseUrl, url);
        }
        if let Some(folder) = self.state_dir {
            loader = loader.flag(Key::StateDir, folder.display().to_string());
        }
        loader
    }

    /// Loads the layers, without the database.
    pub(crate) fn layers(self) -> Result<Layers, Failure> {
        Ok(self.loader().layers()?)
    }
}
