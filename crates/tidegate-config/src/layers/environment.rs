//! Environment variables. This is the only module of the program that reads the process
//! environment.
//!
//! It passes on all variables, because only the file tells which of them hold provider keys.
//! `Debug` therefore shows names without values.

use std::fmt;
use std::ops::Deref;

/// Environment variables, in the order in which they were found.
///
/// ```
/// let variables = [("OPENAI_API_KEY".to_owned(), "sk-secret".to_owned())];
/// let environment: tidegate_config::Environment = variables.into_iter().collect();
/// assert_eq!(environment.get("OPENAI_API_KEY"), Some("sk-secret"));
/// assert_eq!(format!("{environment:?}"), r#"["OPENAI_API_KEY"]"#);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    /// Returns the value of the variable `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the variable at an index.
    pub(crate) fn get_at(&self, at: usize) -> Option<&(String, String)> {
        self.0.get(at)
    }
}

impl Deref for Environment {
    type Target = [(String, String)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl Extend<(String, String)> for Environment {
    fn extend<I: IntoIterator<Item = (String, String)>>(&mut self, variables: I) {
        self.0.extend(variables);
    }
}

impl IntoIterator for Environment {
    type Item = (String, String);
    type IntoIter = std::vec::IntoIter<(String, String)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Returns the environment variables of this process.
#[must_use]
pub fn process_environment() -> Environment {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        // Keep values that are not UTF-8, so that validation rejects them instead of ignoring them.
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect()
}
