//! The HTTP side: connections, one request at a time, and the answers that stream out.

pub(crate) mod ask;
pub(crate) mod call;
mod coding;
pub(crate) mod exchange;
mod response_stream;
mod serve;
pub(crate) mod wire;
