//! Configuration from the outside: texts in, plans or complete lists of errors out.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission;
mod changes;
mod errors;
mod first_run;
mod layers;
mod modules;
mod policies;
mod precedence;
mod providers;
mod sections;

use tidegate_config::{ConfigError, Layers, Loader, Plan};

/// The plan of a text, with nothing else around it.
fn plan(text: &str) -> Result<Plan, ConfigError> {
    Loader::default().text("tidegate.toml", text)
}

/// The lines of the error of a text.
fn error_lines(text: &str) -> Vec<String> {
    let error = plan(text).expect_err("the text is wrong");
    error.to_string().lines().map(ToOwned::to_owned).collect()
}

/// Variables of an environment.
fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The warnings of a plan, by key.
fn warnings(layers: &Layers) -> Vec<String> {
    let mut warnings: Vec<_> =
        layers.plan().unwrap().warnings.iter().map(ToString::to_string).collect();
    warnings.sort();
    warnings
}
