//! The environment as a layer of settings.
//!
//! Names that are almost ours are pointed out and no more: other programs may well set variables
//! with our prefix, as Kubernetes does for a service called `tidegate`.

use std::fmt;

use crate::fault::nearest;
use crate::setting::Key;

/// A variable that looks like one of ours and is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable {
    /// Its name.
    pub name: String,
    /// The one that was probably meant.
    pub nearest: &'static str,
}

impl fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is set and not read; did you mean {}?", self.name, self.nearest)
    }
}

/// The variables of this process that a [`Loader`](crate::Loader) wants to see.
///
/// This is the one place of the program that reads the environment.
#[must_use]
pub fn process_environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("TIDEGATE_") || name == "XDG_CONFIG_HOME")
        // A value that is no text is not passed over in silence: the rules refuse what is left.
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect()
}

/// The variables that look like ours and are none.
pub(crate) fn near_misses(environment: &[(String, String)]) -> Vec<UnknownVariable> {
    let ours = || Key::ALL.into_iter().map(Key::variable);
    let unknown = environment.iter().map(|(name, _)| name).filter(|name| {
        let named =
            ["TIDEGATE_LISTEN_", "TIDEGATE_STORE_", "TIDEGATE_ADMISSION_", "TIDEGATE_MODULES_"];
        named.iter().any(|prefix| name.starts_with(prefix)) && ours().all(|known| known != *name)
    });
    unknown
        .filter_map(|name| {
            Some(UnknownVariable { name: name.clone(), nearest: nearest(name, ours())? })
        })
        .collect()
}
