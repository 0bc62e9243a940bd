//! A provider.

use std::path::Path;

use tidegate_config::{Environment, Loader, ModelsError};
use tidegate_llm::models::ModelsBuilder;

/// The providers as the environment and a file say. `tidegate_config::load_models` does this for
/// the whole process.
pub fn registry(file: &Path, environment: Environment) -> Result<ModelsBuilder, ModelsError> {
    Loader::default().file(file).environment(environment).layers()?.models()
}
