//! What is counted for calls: reported and estimated tokens, errors after the response headers, and
//! access log lines.

mod access_log;
mod ask_for_usage;
mod client;
mod counted;
mod failed;
mod raw_provider;
