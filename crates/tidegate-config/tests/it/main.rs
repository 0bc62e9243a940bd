//! Tests of the public interface: configuration text in, a configuration or the complete list of
//! errors out.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod admission;
mod changes;
mod errors;
mod first_run;
mod layers;
#[cfg(feature = "models")]
mod models;
mod modules;
mod policies;
mod precedence;
mod providers;
mod sections;
mod yaml;

use tidegate_config::{Config, ConfigError, Layers, Loader};

/// Loads a configuration text without environment and flags.
fn config(text: &str) -> Result<Config, ConfigError> {
    Loader::default().text("tidegate.toml", text)
}

/// Returns the error lines of an invalid configuration text.
fn error_lines(text: &str) -> Vec<String> {
    let error = config(text).expect_err("the text is invalid");
    error.to_string().lines().map(ToOwned::to_owned).collect()
}

/// Builds environment variables.
fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Returns the warnings of a configuration, sorted.
fn warnings(layers: &Layers) -> Vec<String> {
    let mut warnings: Vec<_> =
        layers.validate().unwrap().warnings.iter().map(ToString::to_string).collect();
    warnings.sort();
    warnings
}
