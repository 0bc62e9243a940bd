//! What is stored and sent: key names, numbers, entries, and the arguments of the script.

pub(crate) mod entry;
pub(crate) mod names;
pub(crate) mod number;
pub(crate) mod script_args;
