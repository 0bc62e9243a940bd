//! Real servers, a slow network and further processes, for tests that mock nothing.
//!
//! - [`RedisServer`]: Redis or Valkey on a free loopback port, plain or with TLS, to be killed,
//!   frozen and started again.
//! - [`Proxy`]: a TCP proxy that delays, stalls and cuts.
//! - [`Peer`]: the test's own program, once more, as a process of its own.
//! - [`wait_until`]: for a condition that another process brings about.
//!
//! Whatever is started here is stopped with the value that stands for it, and also when the test
//! is killed before it could: a guard outlives the test by that one deed. A program that is not
//! installed fails the test and says how to get it; nothing is skipped.
//!
//! Only this module of the testkit reads a clock: other processes keep their own time, and a test
//! that waits for them must end some day.

mod certificates;
mod control;
mod guard;
mod home;
mod patience;
mod peer;
mod ports;
mod process;
mod programs;
mod proxy;
mod redis;
mod settings;

pub use control::Reply;
pub use patience::wait_until;
pub use peer::Peer;
pub use proxy::Proxy;
pub use redis::RedisServer;
pub use settings::{Flavor, RedisBuilder};
