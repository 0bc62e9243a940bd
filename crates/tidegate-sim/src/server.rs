//! The HTTP side: connections, one request at a time, and the answers that stream out.

pub(crate) mod call;
mod coding;
pub(crate) mod connection;
pub(crate) mod exchange;
pub(crate) mod request;
mod response_stream;
mod serve;
