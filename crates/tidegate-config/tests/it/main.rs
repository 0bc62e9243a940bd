//! Configuration from the outside: texts in, plans or complete lists of errors out.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission;
mod errors;
mod layers;
mod modules;
mod policies;

use tidegate_config::{ConfigError, Loader, Plan};

/// The plan of a text, with nothing else around it.
fn plan(text: &str) -> Result<Plan, ConfigError> {
    Loader::default().text("tidegate.toml", text)
}

/// The lines of the error of a text.
fn complaints(text: &str) -> Vec<String> {
    let error = plan(text).expect_err("the text is wrong");
    error.to_string().lines().map(ToOwned::to_owned).collect()
}
