//! Real servers, a slow network and further processes, for tests that mock nothing.
//!
//! - [`RedisServer`]: Redis or Valkey on a free loopback port, plain or with TLS, to be killed,
//!   frozen and started again.
//! - [`PostgresServer`]: PostgreSQL on a free loopback port, plain or with TLS, to be killed and
//!   started again.
//! - [`Proxy`]: a TCP proxy that delays, stalls and cuts.
//! - [`ForwardProxy`]: an HTTP proxy on the way to servers.
//! - [`TlsFront`]: TLS in front of a server that has none.
//! - [`Peer`]: the test's own program, once more, as a process of its own.
//! - [`unprivileged`]: work to which the permissions of files apply, also if root runs the tests.
//! - [`check_metrics`]: what `promtool` says of metrics.
//! - [`Python`]: scripts that use the official clients of others.
//! - [`wait_until`]: for a condition that another process brings about.
//!
//! Whatever is started here is stopped with the value that stands for it, and also when the test
//! is killed before it could: a guard outlives the test by that one deed. A program that is not
//! installed fails the test and says how to get it; nothing is skipped.
//!
//! Only this module of the testkit reads a clock: other processes keep their own time, and a test
//! that waits for them must end some day.

mod certificates;
mod deadline;
mod forward_proxy;
mod peer;
mod ports;
mod postgres;
mod process;
mod programs;
mod promtool;
mod proxy;
mod python;
mod redis;
mod server_dir;
mod tls_front;

pub use deadline::wait_until;
pub use forward_proxy::{ForwardProxy, ProxyRequest};
pub use peer::Peer;
pub use postgres::PostgresServer;
pub use process::privileges::unprivileged;
pub use promtool::check_metrics;
pub use proxy::Proxy;
pub use python::{Python, Ran};
pub use redis::RedisServer;
pub use redis::control::Reply;
pub use redis::settings::{Flavor, RedisBuilder};
pub use tls_front::TlsFront;
