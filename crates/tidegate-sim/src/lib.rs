//! A simulator of LLM providers: it limits, charges, answers and fails like them, over real HTTP.
//!
//! A [`Simulator`] has [`Account`]s, each with a [`Dialect`], keys, models and their [`Limits`].
//! Clients reach it over a socket ([`Simulator::serve`]) or inside the process
//! ([`Simulator::connect`]), and a [`Ledger`] tells afterwards what they did:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?
//! #     .block_on(async {
//! use std::time::Duration;
//!
//! use tidegate_sim::{Account, Delay, Dialect, Fault, Limits, Simulator};
//! use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
//!
//! let account = Account::new(Dialect::OpenAi, "main", "sk-1")
//!     .model("gpt-4o", Limits::new().requests_per_minute(1))
//!     .first_token(Delay::fixed(Duration::from_millis(400)));
//! let simulator = Simulator::builder().account(account).build()?;
//!
//! let body = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"hello"}]}"#;
//! let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: sim\r\nauthorization: Bearer sk-1\r\n";
//! for status in ["200 OK", "429 Too Many Requests"] {
//!     let mut connection = simulator.connect()?;
//!     let request = format!(
//!         "{head}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
//!         body.len()
//!     );
//!     connection.write_all(request.as_bytes()).await?;
//!     let mut answer = String::new();
//!     connection.read_to_string(&mut answer).await?;
//!     assert!(answer.starts_with(&format!("HTTP/1.1 {status}")));
//! }
//! assert_eq!(simulator.ledger().throttled(), 1);
//!
//! simulator.inject("main", Fault::Overloaded, 3)?; // the next three calls
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - What a provider charges and when is its [`Charging`]; every part of it can be changed.
//! - What an account reports of its limits is its [`Reporting`], which need not be the truth.
//! - Failures come by plan ([`Faults`]), by chance, or on demand ([`Simulator::inject`]).
//! - All time is tokio's, so a paused runtime simulates minutes in no time, and twice the same.
//! - Nothing here is shared with the limiter or the codecs that are tested against it, so that their
//!   mistakes cannot cancel out.
//! - It knows no TLS, no HTTP/2, no images and no words that mean anything, and it charges for tools
//!   but never calls one.

mod account;
mod account_state;
mod calendar;
mod dialect;
mod error;
mod fault;
mod ledger;
mod limits;
mod random;
mod reporting;
mod server;
mod simulator;
mod text;

pub use account::{Account, Delay, Output};
pub use calendar::Zone;
pub use dialect::Dialect;
pub use error::{BuildError, FaultError};
pub use fault::{Fault, Faults, Hint};
pub use ledger::{Ending, Entry, Ledger, RefusalCause, Spread, Usage};
pub use limits::Limits;
pub use limits::charging::{
    CachedTokens, CallCharge, Charging, FailedCalls, OutputReserve, SettlementRule,
};
pub use limits::quota::Dimension;
pub use reporting::{ReportTime, Reporting};
pub use server::connection::Connection;
pub use server::request::{CACHED_TOKENS, CONTENT_CODING, Endpoint, INPUT_TOKENS, OUTPUT_TOKENS};
pub use simulator::{Simulator, SimulatorBuilder};

/// The examples of the README are compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
