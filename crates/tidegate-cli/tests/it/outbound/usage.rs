//! What is counted of calls: tokens that a provider tells and those that it does not, errors after the
//! head of an answer, and the line of each call in the access log.

mod access_log;
mod ask_for_usage;
mod client;
mod counted;
mod failed;
mod raw_provider;
