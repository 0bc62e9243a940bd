//! Tests with a real HTTP client, in-process under paused time and over real sockets.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod admission;
mod bad_requests;
mod building;
mod charging;
mod client;
mod faults;
mod golden_errors;
mod golden_errors_anthropic_gemini;
mod golden_headers;
mod golden_responses;
mod ledger;
mod pacing;
mod queues;
mod report_time;
mod reporting;
mod sockets;
mod stalls;
mod streams;
