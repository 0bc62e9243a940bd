//! The HTTP server: connections, requests and response streams.

pub(crate) mod call;
mod coding;
pub(crate) mod connection;
pub(crate) mod exchange;
pub(crate) mod request;
mod response_stream;
mod serve;
