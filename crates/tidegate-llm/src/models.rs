//! Ready-to-call models: `Retry(Fallback(RateLimit(adapter)))`, each module optional.
//!
//! A program has one [`Models`] registry. It holds the providers with their credentials, the
//! settings of the modules, and the shared state: one account per provider and credential, however
//! many models are loaded. The first model loaded for an account sets its limits; a limit that
//! neither it nor the registry sets is learned from what the provider reports. A later model that
//! asks for other limits shares the existing ones, and a warning is logged once. Use
//! [`Models::reconfigure`] to change them.
//!
//! Limits hold within this process. With [`ModelsBuilder::engine`] on a shared store they hold
//! across all processes that use it.

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

/// Starts to load a model from the registry of this process ([`Models::global`]). See
/// [`Models::load_model`]. Errors are returned by [`ModelBuilder::build`].
#[cfg(feature = "client")]
pub fn load_model<'m>(
    provider: impl Into<crate::Provider>,
    model: impl Into<Option<&'m str>>,
) -> ModelBuilder {
    Models::global().load_model(provider, model)
}
