//! Models that are ready to call: `Retry(Fallback(RateLimit(adapter)))`, each module as wished.
//!
//! [`Models`] is what a program has one of: providers with their credentials, the settings of the
//! modules, and what is shared: one account for each provider and credential, however many models
//! are loaded. The first to load an account sets its limits; whoever asks for others later is told
//! so once, and shares them. [`Models::reconfigure`] is the way to change them.
//!
//! Limits hold in this process. With [`ModelsBuilder::engine`] on a shared store they hold for all
//! processes that use it, with nothing else changed.

mod builder;
mod error;
mod model;
mod profile;
mod registry;
mod setup;

pub use builder::ModelBuilder;
pub use error::LoadError;
pub use model::Model;
pub use profile::Profile;
pub use registry::Models;
pub use setup::ModelsBuilder;

/// A model of a provider, from the registry of this process. See [`Models::load_model`].
///
/// # Panics
/// Never; what fails, fails in [`ModelBuilder::build`].
#[cfg(feature = "client")]
pub fn load_model<'m>(
    provider: impl Into<crate::Provider>,
    model: impl Into<Option<&'m str>>,
) -> ModelBuilder {
    Models::global().load_model(provider, model)
}
