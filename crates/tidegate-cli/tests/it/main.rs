//! The program from the outside: started, asked, stopped.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod attacks;
mod check;
mod config;
mod demo;
mod deploy;
mod doors;
mod first_run;
mod hints;
mod nodes;
mod outbound;
mod output;
mod package;
mod permits;
mod program;
mod reload;
mod replay;
mod resilience;
mod run_time;
mod sdk;
mod serve;
mod service_manager;
mod settings;
mod shared;
mod shedding;
mod stable_names;
mod start;
mod status;
mod trusted_proxies;
