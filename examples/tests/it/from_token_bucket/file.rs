//! The configuration file.

use std::path::Path;

use tidegate_config::{Loader, ModelsError};
use tidegate_llm::models::ModelsBuilder;

/// The registry that a file describes. `tidegate_config::load_models` makes it that of the process,
/// so that `tidegate_llm::models::load_model` follows the file.
pub fn registry(file: &Path) -> Result<ModelsBuilder, ModelsError> {
    Loader::default().file(file).layers()?.models()
}
