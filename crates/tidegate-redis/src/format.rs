//! Stored and sent formats: key names, numbers, entries, and script arguments.

pub(crate) mod entry;
pub(crate) mod names;
pub(crate) mod number;
pub(crate) mod script_args;
