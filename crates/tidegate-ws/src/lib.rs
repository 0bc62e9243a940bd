//! Rate limits for messages on WebSockets, decided before a message is parsed or handled.
//!
//! A [`Gate`] holds the limits, a [`Connection`] is one client at it, and every frame gets a
//! [`MessageDecision`]:
//!
//! ```
//! use tidegate::{Limiter, Policy, now_or_never};
//! use tidegate_ws::{Gate, Identity, Peer, Rule, MessageDecision, key_per_user_per_type};
//!
//! struct Session {
//!     user: String,
//! }
//!
//! impl Identity for Session {
//!     fn user(&self) -> Option<&str> {
//!         Some(&self.user)
//!     }
//! }
//!
//! let limiter = Limiter::new(Policy::per_second(100).capacity(200).build()?);
//! let gate = Gate::for_types(["PING", "SendMessage"])
//!     .limit(Rule::new(limiter).key(key_per_user_per_type))
//!     .build()?;
//!
//! let mut connection = gate.connect(Peer::new(Session { user: "alice".into() }));
//! for _ in 0..200 {
//!     let decision = now_or_never(connection.ingress(r#"{"type":"SendMessage"}"#)).unwrap()?;
//!     assert!(matches!(decision, MessageDecision::Accepted(_)));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - The order is size, type, limits, messages in flight, validation, handler; [`RefusalReason`] has the
//!   table of what a client is told at each step.
//! - Several [`Rule`]s are charged together or not at all. Keys see an [`IngressContext`], never
//!   the payload.
//! - The crate knows no socket and no WebSocket library: it takes bytes and gives a [`ReplyFrame`].
//!   The README shows it with axum and with tokio-tungstenite.
//! - Nothing here retries, queues or delays messages.

mod connection;
mod context;
mod error_frame;
mod exceeded;
mod gate;
mod key;
mod message_decision;
mod peer;

pub use connection::Connection;
pub use connection::connection_keys::MAX_CONNECTION_KEYS;
pub use context::{Identity, IngressContext};
pub use error_frame::{ErrorCode, ErrorFrame, RELEASE_HINT_MS, RefusalReason};
pub use exceeded::{CLOSE_PAYLOAD, CLOSE_RATE, LimitExceeded, LimitKind, OnExceeded};
pub use gate::envelope::json_type;
pub use gate::hook::{HOOK_QUEUE, HookStats};
pub use gate::observe::{Counter, Histogram, Observer};
pub use gate::rule::Rule;
pub use gate::types::{MAX_TYPE_BYTES, UNKNOWN_TYPE};
pub use gate::{BuildError, Gate, GateBuilder, Invalid};
pub use key::{KeyParts, key_per_user_or_ip_per_type, key_per_user_per_type, per_user_key};
pub use message_decision::{AcceptedMessage, MessageDecision, RefusedMessage, ReplyFrame};
pub use peer::{ClientId, Peer};

/// The examples of the README are compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
