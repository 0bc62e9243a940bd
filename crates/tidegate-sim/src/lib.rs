//! A simulator of LLM providers: it limits, charges, responds and fails like them, over real HTTP.
//!
//! A [`Simulator`] has [`Account`]s, each with a [`Dialect`], keys, models and their [`Limits`].
//! Clients reach it over a socket ([`Simulator::serve`]) or inside the process
//! ([`Simulator::connect`]). A [`Ledger`] records what they did:
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
//!     let mut response = String::new();
//!     connection.read_to_string(&mut response).await?;
//!     assert!(response.starts_with(&format!("HTTP/1.1 {status}")));
//! }
//! assert_eq!(simulator.ledger().throttled(), 1);
//!
//! simulator.inject("main", Fault::Overloaded, 3)?; // the next three calls
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Charging`] defines what a provider charges and when; every part can be changed.
//! - [`Reporting`] defines what an account reports about its limits, which need not be accurate.
//! - Faults occur on schedule ([`Faults`]), at random, or on demand ([`Simulator::inject`]).
//! - All time is tokio's, so a paused runtime simulates minutes instantly and reproducibly.
//! - No code is shared with the limiter and the codecs that are tested against it, so that their
//!   bugs cannot cancel out.
//! - There is no TLS, no HTTP/2, no images and no meaningful text. Tools are charged but never
//!   called.

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
pub use ledger::{CallEnding, Ledger, LedgerEntry, RefusalCause, RetryDistribution, Usage};
pub use limits::Limits;
pub use limits::capacity::Work;
pub use limits::charging::{
    CachedTokens, CallCharge, Charging, FailedCalls, OutputReserve, SettlementRule,
};
pub use limits::quota::Dimension;
pub use random::Random;
pub use reporting::{ReportTime, Reporting};
pub use server::connection::Connection;
pub use server::request::{CACHED_TOKENS, CONTENT_CODING, Endpoint, INPUT_TOKENS, OUTPUT_TOKENS};
pub use simulator::{Simulator, SimulatorBuilder};

/// Compiles the examples of the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
