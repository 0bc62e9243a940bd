//! The program from the outside: started, asked, stopped.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod check;
mod config;
mod doors;
mod nodes;
mod outbound;
mod program;
mod reload;
mod sdk;
mod serve;
mod settings;
mod shared;
