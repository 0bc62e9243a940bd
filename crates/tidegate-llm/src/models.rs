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
pub use model::{Model, ModuleName};
pub use profile::Profile;
pub use registry::Models;
pub use setup::ModelsBuilder;

use crate::settings::{FallbackOverrides, RateLimitOverrides, RetryOverrides};

/// Whether a module is there, and with which settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Module<O> {
    /// As the settings say.
    #[default]
    Inherit,
    /// It is not, whatever the settings say.
    Off,
    /// It is, with the numbers of the settings.
    On,
    /// It is, unless this says otherwise, and what is given replaces what the settings say.
    With(O),
}

impl<O> From<bool> for Module<O> {
    fn from(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

impl<O> From<Option<bool>> for Module<O> {
    fn from(on: Option<bool>) -> Self {
        on.map_or(Self::Inherit, Self::from)
    }
}

/// What replaces settings of a module; it may say whether the module is there at all.
trait Overrides: Clone + Default {
    fn enabled(&self) -> Option<bool>;
}

impl Overrides for RateLimitOverrides {
    fn enabled(&self) -> Option<bool> {
        self.enabled
    }
}

impl Overrides for RetryOverrides {
    fn enabled(&self) -> Option<bool> {
        self.enabled
    }
}

impl Overrides for FallbackOverrides {
    fn enabled(&self) -> Option<bool> {
        self.enabled
    }
}

/// Whether a module is there, and what replaces its settings, which say whether it is `enabled`.
fn resolve<O: Overrides>(module: &Module<O>, enabled: bool) -> Option<O> {
    match module {
        Module::Inherit => enabled.then(O::default),
        Module::Off => None,
        Module::On => Some(O::default()),
        Module::With(overrides) => {
            Some(overrides.clone()).filter(|overrides| overrides.enabled() != Some(false))
        }
    }
}

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
