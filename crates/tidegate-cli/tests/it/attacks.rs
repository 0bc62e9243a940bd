//! Attacks on the program from the outside: limits that are walked around, memory that is filled,
//! one caller that stops the others, and secrets that leak.
//!
//! Every test starts the program that `TIDEGATE_PROGRAM` names, else the one that was built with the
//! tests, so that an attack can be run against an older program too.

mod account_settings;
mod accounts;
mod bodies;
mod calls;
mod fairness;
mod leaks;
mod listeners;
mod stage;
