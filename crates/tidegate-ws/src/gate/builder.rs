//! Builds a gate, and rejects invalid settings.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use tidegate::Limiter;
use tidegate_core::MAX_CHARGES;

use super::{EnvelopeFn, Gate, Inner, ValidateFn, ValidationError};
use crate::context::{Identity, IngressContext};
use crate::exceeded::{LimitExceeded, OnExceeded};
use crate::gate::envelope::json_type;
use crate::gate::hook::{HookFn, Reporter};
use crate::gate::limiters::Limiters;
use crate::gate::observe::Observer;
use crate::gate::rule::MessageRule;
use crate::gate::types::{MAX_TYPE_BYTES, Types, UNKNOWN_TYPE};
use crate::key::KeyParts;
use crate::peer::IdGenerator;

/// Error of an invalid gate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A gate for declared types declares none: all messages would share their buckets.
    #[error("gate declares no message type; name some in `for_types`, or use `for_any_type`")]
    NoTypes,
    /// A gate for any type has default keys, which contain the type, and no ceiling: a client that
    /// invents types would not be limited.
    #[error(
        "clients can invent types, and the default key contains the type, so nothing limits them; \
         declare the types with `for_types`, add a `connection_ceiling`, or set a key, such as \
         `per_user_key`"
    )]
    InventedTypes,
    /// A declared type is empty, too long or reserved.
    #[error(
        "message type {0:?} is not usable; it must have 1 to {MAX_TYPE_BYTES} bytes and not be \
         {UNKNOWN_TYPE:?}"
    )]
    Type(Arc<str>),
    /// Limiters of rules are on different stores: their charges cannot be decided all-or-nothing.
    #[error(
        "limiters {0:?} and {1:?} are not on the same store, so they cannot be charged together; \
         create both with the same engine"
    )]
    Stores(String, String),
    /// A message would have more charges than a decision can have.
    #[error("message would be charged by {0} limits; at most {MAX_CHARGES} are allowed")]
    TooManyRules(usize),
    /// A server must not send this close code.
    #[error("close code {0} may not be sent by a server; use 1000-1003, 1007-1014 or 3000-4999")]
    CloseCode(u16),
    /// A maximum is zero: no message would pass.
    #[error("{0} must be at least 1; with 0 no message would pass")]
    ZeroMaximum(&'static str),
    /// The hook thread cannot be started.
    #[error("cannot start the thread of the `on_limit_exceeded` hook: {0}")]
    Hook(#[source] io::Error),
}

/// Builds a [`Gate`]; made by [`Gate::for_types`] and [`Gate::for_any_type`].
#[must_use = "call `build` to create the gate"]
pub struct GateBuilder<D> {
    types: Option<Vec<Arc<str>>>,
    envelope: EnvelopeFn,
    rules: Vec<MessageRule<D>>,
    ceiling: Option<Limiter>,
    zero_is_free: bool,
    max_payload: Option<usize>,
    max_in_flight: Option<usize>,
    validate: Option<ValidateFn<D>>,
    on_exceeded: OnExceeded,
    hook: Option<HookFn>,
    observers: Vec<Arc<dyn Observer>>,
    log_client_ids: bool,
}

impl<D: Identity> GateBuilder<D> {
    pub(super) fn new(types: Option<Vec<Arc<str>>>) -> Self {
        Self {
            types,
            envelope: Box::new(json_type),
            rules: Vec::new(),
            ceiling: None,
            zero_is_free: false,
            max_payload: None,
            max_in_flight: None,
            validate: None,
            on_exceeded: OnExceeded::default(),
            hook: None,
            observers: Vec::new(),
            log_client_ids: false,
        }
    }

    /// Adds a limit: a limiter, or a [`MessageRule`] with its own key and cost. A message is
    /// charged by all rules together or by none; their limiters must share a store.
    ///
    /// A message yields to waiters of a [`Pacer`](tidegate::pacer::Pacer) for the same key, whether
    /// it has one charge or several.
    pub fn limit(mut self, rule: impl Into<MessageRule<D>>) -> Self {
        self.rules.push(rule.into());
        self
    }

    /// Adds a limit with this key. A closure needs no annotations if the gate names its data type:
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// use tidegate_ws::{Gate, Identity, KeyParts};
    ///
    /// struct Member { room: String }
    /// impl Identity for Member {}
    ///
    /// let rooms = Limiter::new(Policy::per_second(20).capacity(50).build()?);
    /// let gate = Gate::<Member>::for_types(["Say"])
    ///     .limit_by(rooms, |context| KeyParts::from(["room", &context.data().room]))
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn limit_by(
        self,
        limiter: Limiter,
        key: impl for<'a> Fn(&IngressContext<'a, D>) -> KeyParts<'a> + Send + Sync + 'static,
    ) -> Self {
        self.limit(MessageRule::new(limiter).key(key))
    }

    /// Adds a limit for each connection as a whole: one token for every frame, whatever its type,
    /// unless another limit denies it. With an [allowance](tidegate::Policy::allowance) that is a
    /// total number of frames, after which the client gets `Connection limit reached`.
    ///
    /// It is decided in this process, on whatever store the limiter and the other limits are:
    /// beside limits on Redis, it costs no call and leaves no key there. A message that it denies
    /// spends nothing of the other limits, and one that they deny spends nothing of it, so that a
    /// client which retries too early does not use up its connection; see
    /// [`Connection::ingress`](crate::Connection::ingress). To bound denied messages, close the
    /// connection: [`OnExceeded::Close`].
    ///
    /// Frames that are too large or have no readable type, and messages with an invalid cost or key,
    /// are charged too, by the ceiling alone. Once the ceiling denies them, the client gets its
    /// error instead of the error of the frame. A message that is refused because a shared store is
    /// away is charged as well.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// use tidegate_ws::Gate;
    /// let gate = Gate::<()>::for_any_type()
    ///     .connection_ceiling(Limiter::new(Policy::allowance(1_000)?))
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connection_ceiling(mut self, limiter: Limiter) -> Self {
        self.ceiling = Some(limiter);
        self
    }

    /// Allows cost functions to return 0: the rule does not charge such a message. By default a
    /// cost of 0 is an error.
    pub const fn allow_zero_cost(mut self) -> Self {
        self.zero_is_free = true;
        self
    }

    /// Refuses messages with more bytes. They are charged to the
    /// [ceiling](Self::connection_ceiling) of the connection only, if there is one. The frame is
    /// already in memory then: also set the limit of the WebSocket library, somewhat higher.
    pub const fn max_payload(mut self, bytes: usize) -> Self {
        self.max_payload = Some(bytes);
        self
    }

    /// Refuses messages while this many of the same connection are being handled. They are charged
    /// nevertheless.
    pub const fn max_in_flight(mut self, messages: usize) -> Self {
        self.max_in_flight = Some(messages);
        self
    }

    /// Sets the function that reads the type of a message, in place of [`json_type`]; `None` means
    /// there is none. It runs on every frame that is not too large, before any limit.
    ///
    /// ```
    /// use std::borrow::Cow;
    /// use tidegate::now_or_never;
    /// use tidegate_ws::{Gate, Peer, MessageDecision};
    /// let gate = Gate::for_types(["PING"])
    ///     .envelope(|frame| {
    ///         let name = frame.split(|byte| *byte == b' ').next()?;
    ///         Some(Cow::Borrowed(std::str::from_utf8(name).ok()?))
    ///     })
    ///     .build()?;
    /// let decision = now_or_never(gate.connect(Peer::new(())).ingress("PING 42")).unwrap()?;
    /// assert!(matches!(decision, MessageDecision::Accepted(token) if token.message_type() == "PING"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn envelope(
        mut self,
        read: impl Fn(&[u8]) -> Option<Cow<'_, str>> + Send + Sync + 'static,
    ) -> Self {
        self.envelope = Box::new(read);
        self
    }

    /// Sets a check for messages within all limits, before they are handled.
    pub fn validate(
        mut self,
        check: impl Fn(&IngressContext<'_, D>, &[u8]) -> Result<(), ValidationError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.validate = Some(Box::new(check));
        self
    }

    /// Sets what happens to connections that exceed the size or a rate.
    pub const fn on_exceeded(mut self, action: OnExceeded) -> Self {
        self.on_exceeded = action;
        self
    }

    /// Calls `hook` once for every message that exceeds the size or a rate, whatever happens to its
    /// connection. It runs on a thread of the gate and delays no message. If it is
    /// [`HOOK_QUEUE_CAPACITY`](crate::HOOK_QUEUE_CAPACITY) calls behind, further calls are
    /// [counted](Gate::hook_stats) and dropped. Panics are counted too. Before the process exits,
    /// wait for the queued calls with [`Gate::drain_hook`].
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use tidegate::now_or_never;
    /// use tidegate_ws::{Gate, LimitKind, Peer};
    /// let (sender, receiver) = channel();
    /// let gate = Gate::for_types(["SAY"])
    ///     .max_payload(8)
    ///     .on_limit_exceeded(move |exceeded| sender.send(exceeded).unwrap())
    ///     .build()?;
    /// let _ = now_or_never(gate.connect(Peer::new(())).ingress(r#"{"type":"SAY"}"#));
    /// let exceeded = receiver.recv()?;
    /// assert_eq!((exceeded.kind, exceeded.observed, exceeded.limit), (LimitKind::Payload, 14, 8));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_limit_exceeded(mut self, hook: impl FnMut(LimitExceeded) + Send + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Adds a receiver of metrics. Each gets all of them, in the order of the calls.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Adds connection ids that the application chose to the log events `rate_limited` and
    /// `payload_exceeded`. By default only generated ids are logged, which identify no person.
    pub const fn log_client_ids(mut self) -> Self {
        self.log_client_ids = true;
        self
    }

    /// Builds the gate.
    ///
    /// # Errors
    /// Returns an error if the settings are invalid; see [`BuildError`].
    pub fn build(self) -> Result<Gate<D>, BuildError> {
        let types = build_types(self.types)?;
        if let Some(code) = self.on_exceeded.forbidden_code() {
            return Err(BuildError::CloseCode(code));
        }
        if self.max_payload == Some(0) {
            return Err(BuildError::ZeroMaximum("max_payload"));
        }
        if self.max_in_flight == Some(0) {
            return Err(BuildError::ZeroMaximum("max_in_flight"));
        }
        let charges = self.rules.len() + usize::from(self.ceiling.is_some());
        if charges > MAX_CHARGES {
            return Err(BuildError::TooManyRules(charges));
        }
        if types.is_any() && self.ceiling.is_none() && admits_invented_types(&self.rules) {
            return Err(BuildError::InventedTypes);
        }
        let (mut rules, mut limiters) = (self.rules, Vec::new());
        rules.iter_mut().for_each(|rule| rule.assign_indices(&mut limiters));
        check_stores(&limiters)?;
        let reporter = Reporter::new(self.hook, self.observers, self.log_client_ids);
        let inner = Inner {
            types,
            envelope: self.envelope,
            rules,
            limiters: Arc::new(Limiters::new(limiters, self.ceiling)),
            zero_is_free: self.zero_is_free,
            max_payload: self.max_payload,
            max_in_flight: self.max_in_flight,
            validate: self.validate,
            on_exceeded: self.on_exceeded,
            reporter: reporter.map_err(BuildError::Hook)?,
            ids: IdGenerator::new(),
        };
        Ok(Gate { inner: Arc::new(inner) })
    }
}

impl<D> fmt::Debug for GateBuilder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateBuilder").field("rules", &self.rules).finish_non_exhaustive()
    }
}

fn build_types(declared: Option<Vec<Arc<str>>>) -> Result<Types, BuildError> {
    let Some(declared) = declared else { return Ok(Types::Any) };
    if declared.is_empty() {
        return Err(BuildError::NoTypes);
    }
    let is_invalid = |name: &&Arc<str>| {
        name.is_empty() || name.len() > MAX_TYPE_BYTES || &***name == UNKNOWN_TYPE
    };
    match declared.iter().find(is_invalid) {
        Some(invalid) => Err(BuildError::Type(invalid.clone())),
        None => Ok(Types::Declared(HashSet::from_iter(declared))),
    }
}

/// Returns whether an invented type can get a new bucket while no other limit is certain to charge
/// its message.
fn admits_invented_types<D>(rules: &[MessageRule<D>]) -> bool {
    let uses_default_key = |rule: &MessageRule<D>| rule.chain().any(MessageRule::has_default_key);
    let always_charges = |rule: &MessageRule<D>| !rule.chain().all(MessageRule::is_conditional);
    rules.iter().any(uses_default_key)
        && !rules.iter().any(|rule| always_charges(rule) && !uses_default_key(rule))
}

/// Charges are decided together, so they must be on one store.
fn check_stores(limiters: &[Limiter]) -> Result<(), BuildError> {
    for pair in limiters.windows(2) {
        let [one, other] = pair else { continue };
        if !one.engine().store().ptr_eq(other.engine().store()) {
            let name = |limiter: &Limiter| limiter.limit().name().to_owned();
            return Err(BuildError::Stores(name(one), name(other)));
        }
    }
    Ok(())
}
