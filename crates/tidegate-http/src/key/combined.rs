//! Keys combined from several sources, encoded so that different requests never share one.

use std::fmt;
use std::sync::Arc;

use super::{KeySource, KeyText};
use crate::head::Head;

/// A key of several parts. Made by [`all_of`].
#[derive(Clone, Default)]
pub struct AllOf(Vec<Arc<dyn KeySource>>);

/// Combines several parts to one key, such as a tenant and a route. If any part is missing, there
/// is no key.
///
/// Parts are escaped, so that `a:b` and `c` differ from `a` and `b:c`.
///
/// ```
/// use tidegate_http::key;
/// let source = key::all_of().and(key::header("x-tenant")).and(key::path(["/users/{id}"])?);
/// # Ok::<(), key::TemplateError>(())
/// ```
#[must_use]
pub const fn all_of() -> AllOf {
    AllOf(Vec::new())
}

impl AllOf {
    /// Appends a part.
    #[must_use]
    pub fn and(mut self, part: impl KeySource + 'static) -> Self {
        self.0.push(Arc::new(part));
        self
    }
}

impl KeySource for AllOf {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        let mut parts = KeyText::default();
        for source in &self.0 {
            parts.push_part(KeyText::of(source, head)?.as_str());
        }
        key.push_str(parts.as_str());
        Some(())
    }
}

impl fmt::Debug for AllOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllOf(<{} parts>)", self.0.len())
    }
}

/// The first available key of several sources. Made by [`first_of`].
#[derive(Clone, Default)]
pub struct FirstOf(Vec<(&'static str, Arc<dyn KeySource>)>);

/// Uses the first source that has a key, with a tag for the source: a user named `10.0.0.1` is not
/// the client at that address.
///
/// ```
/// use tidegate_http::key;
/// let source = key::first_of().or("user", key::header("x-user")).or("ip", key::client_ip());
/// ```
#[must_use]
pub const fn first_of() -> FirstOf {
    FirstOf(Vec::new())
}

impl FirstOf {
    /// Appends a source with its tag. Give each source its own tag, which keeps their keys apart.
    #[must_use]
    pub fn or(mut self, tag: &'static str, source: impl KeySource + 'static) -> Self {
        self.0.push((tag, Arc::new(source)));
        self
    }
}

impl KeySource for FirstOf {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        let found = |(tag, source): &(&'static str, Arc<dyn KeySource>)| {
            Some((*tag, KeyText::of(source, head)?))
        };
        let (tag, value) = self.0.iter().find_map(found)?;
        let mut tagged = KeyText::default();
        tagged.push_part(tag);
        tagged.push_part(value.as_str());
        key.push_str(tagged.as_str());
        Some(())
    }
}

impl fmt::Debug for FirstOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(tag, _)| tag)).finish()
    }
}
