//! Rate limits for WebSocket messages, decided before a message is validated or handled.
//!
//! A [`Gate`] holds the limits, a [`Connection`] is one client of it, and every frame gets a
//! [`MessageDecision`]:
//!
//! ```
//! use tidegate::{Limiter, Policy, now_or_never};
//! use tidegate_ws::{Gate, Identity, MessageDecision, MessageRule, Peer, key_per_user_per_type};
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
//!     .limit(MessageRule::new(limiter).key(key_per_user_per_type))
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
//! - Messages pass size, type, limits, messages in flight, validation and handler, in this order;
//!   [`RefusalReason`] has the table of errors at each step.
//! - Several [`MessageRule`]s are charged together or not at all. Key functions see an
//!   [`IngressContext`], never the payload.
//! - A gate uses no socket and no WebSocket library: it takes bytes and returns a [`ReplyFrame`].
//!   With the feature `axum`, `Sockets` is a complete server loop.
//! - It never retries, queues or delays messages.

mod connection;
mod context;
mod error_frame;
mod exceeded;
mod gate;
mod key;
mod message_decision;
mod peer;
#[cfg(feature = "axum")]
mod sockets;

pub use connection::Connection;
pub use connection::connection_keys::MAX_CONNECTION_KEYS;
pub use context::{Identity, IngressContext};
pub use error_frame::{ErrorCode, ErrorFrame, RELEASE_HINT_MS, RefusalReason};
pub use exceeded::{CLOSE_PAYLOAD, CLOSE_RATE, LimitExceeded, LimitKind, OnExceeded};
pub use gate::envelope::json_type;
pub use gate::hook::{HOOK_QUEUE_CAPACITY, HookStats};
pub use gate::observe::{Counter, Histogram, Observer};
pub use gate::rule::MessageRule;
pub use gate::types::{MAX_TYPE_BYTES, UNKNOWN_TYPE};
pub use gate::{BuildError, Gate, GateBuilder, ValidationError};
pub use key::{KeyParts, key_per_user_or_ip_per_type, key_per_user_per_type, per_user_key};
pub use message_decision::{AcceptedMessage, MessageDecision, RefusedMessage, ReplyFrame};
pub use peer::{ClientId, Peer};
#[cfg(feature = "axum")]
pub use sockets::{Handler, OUTBOX_CAPACITY, ReceivedMessage, Sockets};
pub use tidegate_http::identity::ClientAddress;

/// Compiles the examples of the README as doc tests.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;
