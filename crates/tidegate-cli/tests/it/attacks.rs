//! Attacks on the program: circumventing limits, exhausting memory, blocking other callers, and
//! leaking secrets.
//!
//! Every test starts the program named by `TIDEGATE_PROGRAM`, or else the one built with the tests,
//! so that attacks can be run against older versions too.

mod account_settings;
mod accounts;
mod bodies;
mod calls;
mod fairness;
mod fixtures;
mod leaks;
mod listeners;
mod refused_uploads;
