//! Real servers, a slow network and other processes, for tests without mocks.
//!
//! - [`RedisServer`]: Redis or Valkey on a free loopback port, plain or with TLS. Can be killed,
//!   frozen and restarted.
//! - [`PostgresServer`]: PostgreSQL on a free loopback port, plain or with TLS. Can be killed and
//!   restarted.
//! - [`Workerd`]: the runtime of Cloudflare Workers, with Durable Objects. Can be stopped, killed,
//!   frozen and restarted.
//! - [`Proxy`]: a TCP proxy that delays, stalls and cuts.
//! - [`ForwardProxy`]: an HTTP forward proxy.
//! - [`TlsFront`]: TLS in front of a server that has none.
//! - [`Peer`]: the test's own program in another process.
//! - [`unprivileged`]: runs work without root privileges, so that file permissions apply.
//! - [`check_metrics`], [`run_promtool`]: check metrics, rules and configurations with `promtool`.
//! - [`Python`]: runs scripts that use the official client libraries of providers.
//! - [`WallClock`]: a wall clock that a test steps, for another process.
//! - [`wait_until`]: waits for a condition that another process fulfils.
//!
//! Every started process is stopped when its value is dropped, and also when the test is killed
//! before that: a guard process cleans up. A program that is not installed fails the test with
//! instructions for installing it; nothing is skipped.
//!
//! Only this module of the testkit reads a clock: waiting for another process needs a timeout.

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
mod wall_clock;
mod workerd;

pub use deadline::wait_until;
pub use forward_proxy::{ForwardProxy, ProxyRequest};
pub use peer::Peer;
pub use postgres::PostgresServer;
pub use process::privileges::unprivileged;
pub use promtool::{check_metrics, run_promtool};
pub use proxy::Proxy;
pub use python::{Python, ScriptOutput};
pub use redis::RedisServer;
pub use redis::control::Reply;
pub use redis::settings::{Flavor, RedisBuilder};
pub use tls_front::TlsFront;
pub use wall_clock::WallClock;
pub use workerd::{ModuleKind, Workerd, WorkerdBuilder};
