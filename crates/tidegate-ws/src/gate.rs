//! The gate: limits shared by all connections of an application.

mod builder;
pub(crate) mod envelope;
pub(crate) mod hook;
pub(crate) mod limiters;
pub(crate) mod observe;
pub(crate) mod rule;
pub(crate) mod types;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use builder::{BuildError, GateBuilder};
use tidegate::clock::wall_now;
use tidegate_core::WallTime;

use crate::connection::Connection;
use crate::context::{Identity, IngressContext};
use crate::error_frame::RefusalReason;
use crate::exceeded::{LimitExceeded, OnExceeded};
use crate::gate::hook::{HookStats, Reporter};
use crate::gate::limiters::Limiters;
use crate::gate::rule::MessageRule;
use crate::gate::types::Types;
use crate::message_decision::RefusedMessage;
use crate::peer::{IdGenerator, Peer};

pub(crate) type EnvelopeFn = Box<dyn Fn(&[u8]) -> Option<Cow<'_, str>> + Send + Sync>;
pub(crate) type ValidateFn<D> =
    Box<dyn Fn(&IngressContext<'_, D>, &[u8]) -> Result<(), ValidationError> + Send + Sync>;

/// Error of a validation. Its text is sent to the client.
///
/// ```
/// use tidegate_ws::{Gate, ValidationError};
/// let gate = Gate::<()>::for_types(["SAY"])
///     .validate(|_, frame| match serde_json::from_slice::<serde_json::Value>(frame) {
///         Ok(message) if message["text"].is_string() => Ok(()),
///         _ => Err(ValidationError::new("text is missing")),
///     })
///     .build()?;
/// # Ok::<(), tidegate_ws::BuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValidationError(pub(crate) Cow<'static, str>);

impl ValidationError {
    /// Creates an error with this text.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}

/// Limits for the messages of any number of connections. Cheap to clone.
///
/// `D` is the application's data of a connection; see [`Identity`].
///
/// ```
/// use tidegate::{Limiter, Policy};
/// use tidegate_ws::{Gate, Peer};
///
/// let limiter = Limiter::new(Policy::per_second(5).capacity(10).build()?);
/// let gate = Gate::<()>::for_types(["Say", "Typing"]).limit(limiter).build()?;
/// let connection = gate.connect(Peer::new(()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Gate<D> {
    inner: Arc<Inner<D>>,
}

/// State of a gate, shared by its connections.
pub(crate) struct Inner<D> {
    pub(crate) types: Types,
    pub(crate) envelope: EnvelopeFn,
    pub(crate) rules: Vec<MessageRule<D>>,
    pub(crate) limiters: Arc<Limiters>,
    pub(crate) zero_is_free: bool,
    pub(crate) max_payload: Option<usize>,
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) validate: Option<ValidateFn<D>>,
    pub(crate) on_exceeded: OnExceeded,
    pub(crate) reporter: Reporter,
    pub(crate) ids: IdGenerator,
}

impl<D: Identity> Gate<D> {
    /// Starts a gate that knows these message types. All others count as one, under the name
    /// [`UNKNOWN_TYPE`](crate::UNKNOWN_TYPE), so that no client gets a full bucket by inventing a
    /// type.
    pub fn for_types<T: AsRef<str>>(types: impl IntoIterator<Item = T>) -> GateBuilder<D> {
        GateBuilder::new(Some(types.into_iter().map(|name| Arc::from(name.as_ref())).collect()))
    }

    /// Starts a gate that accepts every type of up to [`MAX_TYPE_BYTES`](crate::MAX_TYPE_BYTES) as
    /// a separate type.
    ///
    /// Clients can then invent types. That is harmless with keys that do not contain the type, such
    /// as [`per_user_key`](crate::per_user_key). With other keys, every invented type is a new
    /// bucket, so [`build`](GateBuilder::build) requires a
    /// [ceiling](GateBuilder::connection_ceiling), unless some limit charges every message to keys
    /// that the application chose.
    pub fn for_any_type() -> GateBuilder<D> {
        GateBuilder::new(None)
    }

    /// Creates the connection for a client.
    #[must_use = "pass frames to the connection"]
    pub fn connect(&self, peer: Peer<D>) -> Connection<D> {
        Connection::new(Arc::clone(&self.inner), peer)
    }
}

impl<D> Gate<D> {
    /// Maximum size of a message.
    #[cfg(feature = "axum")]
    pub(crate) fn max_payload(&self) -> Option<usize> {
        self.inner.max_payload
    }

    /// Waits until the [hook](GateBuilder::on_limit_exceeded) has been called for every message
    /// that was refused before.
    ///
    /// Call it before the process exits, with a timeout if the hook may block: calls that are still
    /// queued are lost with the process, and [`HookStats::pending`] is their number. `Sockets::close`
    /// does it. It needs no runtime.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limiter, Policy};
    /// use tidegate_ws::{Gate, Peer};
    /// # use std::sync::Arc;
    /// # use std::sync::atomic::{AtomicUsize, Ordering};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let calls = Arc::new(AtomicUsize::new(0));
    /// # let count = calls.clone();
    /// let gate = Gate::for_types(["SAY"])
    ///     .max_payload(8)
    ///     .on_limit_exceeded(move |exceeded| {
    ///         // Write it to a file.
    ///         # assert_eq!(exceeded.limit, 8);
    ///         # count.fetch_add(1, Ordering::SeqCst);
    ///     })
    ///     .build()?;
    /// let _ = gate.connect(Peer::new(())).ingress(r#"{"type":"SAY"}"#).await?;
    /// if tokio::time::timeout(Duration::from_secs(5), gate.drain_hook()).await.is_err() {
    ///     eprintln!("{} hook calls are lost", gate.hook_stats().pending);
    /// }
    /// # assert_eq!(calls.load(Ordering::SeqCst), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn drain_hook(&self) {
        self.inner.reporter.drain_hook().await;
    }

    /// Returns statistics of the hook and the observers.
    #[must_use]
    pub fn hook_stats(&self) -> HookStats {
        self.inner.reporter.stats()
    }
}

impl<D> Inner<D> {
    /// Returns the time by the clock of the store.
    pub(crate) fn wall_time(&self) -> WallTime {
        self.limiters.first().map_or_else(wall_now, |limiter| limiter.engine().wall_time())
    }

    /// Refuses a message that exceeds a size or rate limit: reports it once and builds the reply.
    pub(crate) fn refuse_exceeded(
        &self,
        reason: RefusalReason,
        exceeded: LimitExceeded,
    ) -> RefusedMessage {
        self.reporter.report(&exceeded);
        let reply = self.on_exceeded.reply(reason, &exceeded);
        RefusedMessage::new(reason, Some(exceeded), reply)
    }
}

impl<D> Clone for Gate<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<D> fmt::Debug for Gate<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("limiters", &self.inner.limiters)
            .field("on_exceeded", &self.inner.on_exceeded)
            .field("reporter", &self.inner.reporter)
            .finish_non_exhaustive()
    }
}
