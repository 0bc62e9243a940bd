//! Permits for calls.

use crate::error::CallError;
use crate::usage::Usage;

/// What a call has been granted, to be settled with what it really used.
#[derive(Debug)]
#[must_use = "a reservation that is dropped counts as a call that was broken off"]
pub struct Reservation {}

impl Reservation {
    /// Some of the output has come.
    pub fn saw(&mut self, text: &str) {
        let _ = text;
    }

    /// The answer is complete.
    pub fn complete(self, usage: Option<Usage>) {
        let _ = usage;
    }

    /// The answer broke off.
    pub fn broke_off(self, error: &CallError, usage: Option<Usage>) {
        let _ = (error, usage);
    }
}
