//! Providers that fail, limit their callers' growth or serve several workloads: what the built program
//! sends to them, counted at a server that answers as each test says.

mod breaker;
mod endpoints;
mod ramp;
mod retries;
mod upstream;
