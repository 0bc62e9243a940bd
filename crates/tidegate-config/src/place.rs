//! Where a value stands: in which layer, and where in it.

use crate::setting::Source;

/// The place of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The layer.
    pub source: Source,
    /// In a text its first byte; else the number of the variable, of the setting of the database or
    /// of the flag. `None` for what was made up, and for requests.
    pub at: Option<usize>,
}
