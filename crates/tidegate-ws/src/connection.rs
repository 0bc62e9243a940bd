//! One connection, and the steps that each of its messages passes.
//!
//! 1. size, 2. type, 3. limits, 4. messages in flight, 5. validation, 6. the handler.
//!
//! Nothing here reads or writes a socket: frames come in as bytes, and the result is a token for
//! the handler or a reply for the client. Only step 3 may have to wait, and only for a shared
//! store.
//!
//! Frames that fail step 1 or 2, and messages whose cost or keys are invalid, are charged to the
//! ceiling of the connection alone: otherwise they would be unlimited.

pub(crate) mod charges;
pub(crate) mod connection_keys;
pub(crate) mod slots;
mod store_call;

use std::fmt;
use std::sync::Arc;

use tidegate::{Denial, FailureRule, Policy, StoreError};
use tidegate_core::WallTime;
use tidegate_http::field::RetryAfter;

use crate::connection::charges::{BadCost, MessageCharges};
use crate::connection::connection_keys::ConnectionKeys;
use crate::connection::store_call::ChargeDecision;
use crate::context::{Identity, IngressContext};
use crate::error_frame::{ErrorFrame, RELEASE_HINT_MS, RefusalReason};
use crate::exceeded::{LimitExceeded, LimitKind};
use crate::gate::Inner;
use crate::gate::types::TypeLabel;
use crate::key::connection_key;
use crate::message_decision::{
    AcceptedMessage, InFlight, MessageDecision, RefusedMessage, ReplyFrame,
};
use crate::peer::{ClientId, Peer};

/// Retry hint in milliseconds for a message that could not be decided: it is unknown when the store
/// is back.
const UNAVAILABLE_HINT_MS: u64 = 1_000;

/// One client connection of a gate, made by [`Gate::connect`](crate::Gate::connect).
///
/// Pass it every text and binary frame, and only those: pings, pongs and close frames are not
/// charged.
///
/// After a close frame for the client, all further frames are refused without a reply. They are
/// neither charged nor handled.
///
/// The buckets that belong to this connection alone are in this process, also under limits of a
/// shared store: the [ceiling](crate::GateBuilder::connection_ceiling), and those under a
/// [connection key](IngressContext::connection_key), which the default key of a client without user
/// and address is. So they cost no call to the shared store, and a crash leaves none there.
///
/// Dropping the connection resets them. It tracks
/// [`MAX_CONNECTION_KEYS`](crate::MAX_CONNECTION_KEYS) of them; the store drops further token
/// buckets once they are full, and keeps those of an [allowance](tidegate::Policy::allowance) until
/// they are [reset](tidegate::Limiter::reset). Messages that are still being handled keep their
/// slots.
pub struct Connection<D> {
    gate: Arc<Inner<D>>,
    id: ClientId,
    ip: Option<Box<str>>,
    data: D,
    charges: MessageCharges,
    in_flight: InFlight,
    own_keys: ConnectionKeys,
    /// Whether a close frame was returned; frames sent before the client reads it still arrive.
    is_closing: bool,
}

impl<D: Identity> Connection<D> {
    pub(crate) fn new(gate: Arc<Inner<D>>, peer: Peer<D>) -> Self {
        let id = peer.id.map_or_else(|| gate.ids.next(), |id| ClientId::chosen(&id));
        let own_keys = ConnectionKeys::new(gate.limiters.clone());
        Self {
            id,
            ip: peer.network.map(|network| network.addr().to_string().into()),
            data: peer.data,
            charges: MessageCharges::default(),
            in_flight: InFlight::default(),
            own_keys,
            is_closing: false,
            gate,
        }
    }

    /// Decides on a frame. On a local store the future is ready at the first poll, and
    /// [`tidegate::now_or_never`] resolves it without a runtime.
    ///
    /// A message is charged by all of its limits or by none. Buckets of this connection that are in
    /// this process beside limits of a shared store are charged first. If one of them denies the
    /// message, the shared store is not called; if a limit on the shared store denies it, they get
    /// back exactly what was charged. No other message of this connection is decided in between.
    ///
    /// If the future is dropped while a shared store decides, or the store fails, the message may
    /// have been charged there, and stays charged here, also if the failure rule
    /// [`Closed`](tidegate::FailureRule::Closed) refuses it. A task releases its slots. Without a
    /// tokio runtime they are released when their lease expires or, without a lease, when their key
    /// is reset.
    ///
    /// ```
    /// # use tidegate_ws::{Gate, Peer, MessageDecision};
    /// # use tidegate::{Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Policy::per_second(1).build()?);
    /// let gate = Gate::for_types(["PING"]).limit(limiter).build()?;
    /// let mut connection = gate.connect(Peer::new(()));
    /// match connection.ingress(r#"{"type":"PING"}"#).await? {
    ///     MessageDecision::Accepted(accepted) => assert_eq!(accepted.message_type(), "PING"),
    ///     MessageDecision::Refused(refusal) => println!("tell the client: {:?}", refusal.reply()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the store is unavailable, or rejects the charges of the message: a key is
    /// too long, for example. The second is charged to the ceiling alone. Do not handle the message
    /// then. The hook is not called, because no limit was exceeded. To decide without the store,
    /// wrap it in a guard (`tidegate::guard`), as [`Engine::shared`](tidegate::Engine::shared)
    /// does: its failure rules decide then, and [`RefusalReason::StoreUnavailable`] is what the
    /// rule `closed` refuses.
    pub async fn ingress(
        &mut self,
        frame: impl AsRef<[u8]>,
    ) -> Result<MessageDecision, StoreError> {
        let frame = frame.as_ref();
        let gate = Arc::clone(&self.gate);
        let message = match self.prepare(&gate, frame) {
            Ok(message) => message,
            Err(refusal) => return Ok(MessageDecision::Refused(refusal)),
        };
        let decision = self.charges.decide(&gate.limiters, &mut self.own_keys).await?;
        Ok(self.finish(&gate, &message, decision))
    }

    /// Refuses a message for which [`ingress`](Self::ingress) returned an error, and logs the
    /// error, at most once in five seconds.
    ///
    /// The client gets `UNAVAILABLE` with a hint of one second, or `FAILED_PRECONDITION` without
    /// one if the charges are invalid, for example because a key is too long. The connection stays
    /// open.
    pub fn refuse_undecided(&self, error: &StoreError) -> RefusedMessage {
        self.gate.reporter.not_decided(error);
        let (reason, hint) = if error.is_caller_error() {
            (RefusalReason::NotChargeable, None)
        } else {
            (RefusalReason::StoreUnavailable, Some(UNAVAILABLE_HINT_MS))
        };
        refuse_with(reason, &reason.frame().with_hint(hint))
    }

    /// Returns the context that key and cost functions would see for a message of this type
    /// received now. The type is used as given.
    #[must_use]
    pub fn context<'a>(&'a self, message_type: &'a str) -> IngressContext<'a, D> {
        let received_at = self.gate.wall_time();
        let (id, ip) = (self.id.as_str(), self.ip.as_deref());
        IngressContext::new(message_type, id, ip, &self.data, received_at)
    }

    /// Steps before the store call: checks size and type, and collects the charges.
    fn prepare<'a>(
        &mut self,
        gate: &'a Inner<D>,
        frame: &'a [u8],
    ) -> Result<Message<'a>, RefusedMessage> {
        if self.is_closing {
            return Err(RefusedMessage::new(RefusalReason::Closing, None, ReplyFrame::Nothing));
        }
        let label = match gate.max_payload {
            Some(max) if frame.len() > max => Err(FrameError::TooLarge { max }),
            _ => (gate.envelope)(frame).map(|raw| gate.types.label(raw)).ok_or(FrameError::NoType),
        };
        let mut message = Message { frame, label, received_at: gate.wall_time() };
        let (id, ip) = (self.id.as_str(), self.ip.as_deref());
        let context =
            message.label.as_ref().ok().map(|label| message.context(label, id, ip, &self.data));
        let rules = (&*gate.limiters, &*gate.rules);
        let collected =
            self.charges.collect(rules, gate.zero_is_free, context.as_ref(), &connection_key(id));
        if let Err(BadCost) = collected {
            message.label = Err(FrameError::InvalidCost);
        }
        Ok(message)
    }

    /// Steps after the store call: checks messages in flight, and validates.
    fn finish(
        &mut self,
        gate: &Inner<D>,
        message: &Message<'_>,
        decision: ChargeDecision,
    ) -> MessageDecision {
        let slots = match decision {
            ChargeDecision::Granted { slots, full_buckets } => {
                gate.reporter.count_new_buckets(full_buckets);
                slots
            }
            ChargeDecision::Denied { denial, first } => {
                return MessageDecision::Refused(self.refuse_denied(gate, &denial, first));
            }
            ChargeDecision::Unknown => {
                return MessageDecision::Refused(refuse_without_limit(RefusalReason::Rate));
            }
        };
        let label = match &message.label {
            Ok(label) => label,
            Err(error) => {
                return MessageDecision::Refused(self.refuse_invalid(gate, message.frame, error));
            }
        };
        let guard = match self.in_flight.enter(gate.max_in_flight) {
            Ok(guard) => guard,
            Err(count) => {
                let frame = RefusalReason::InFlight
                    .frame()
                    .with_details("in_flight", count as u64 + 1, count as u64)
                    .with_hint(Some(RELEASE_HINT_MS));
                return MessageDecision::Refused(refuse_with(RefusalReason::InFlight, &frame));
            }
        };
        let context = message.context(label, self.id.as_str(), self.ip.as_deref(), &self.data);
        if let Some(validate) = &gate.validate
            && let Err(invalid) = validate(&context, message.frame)
        {
            let frame = RefusalReason::Invalid.frame().with_message(invalid.0);
            return MessageDecision::Refused(refuse_with(RefusalReason::Invalid, &frame));
        }
        MessageDecision::Accepted(AcceptedMessage::new(label.to_shared(), guard, slots))
    }

    /// Refuses a frame that is not a valid message.
    fn refuse_invalid(
        &mut self,
        gate: &Inner<D>,
        frame: &[u8],
        error: &FrameError,
    ) -> RefusedMessage {
        let max = match *error {
            FrameError::TooLarge { max } => max,
            FrameError::NoType => return refuse_without_limit(RefusalReason::Unparseable),
            FrameError::InvalidCost => return refuse_without_limit(RefusalReason::InvalidCost),
        };
        let exceeded = LimitExceeded {
            kind: LimitKind::Payload,
            observed: frame.len() as u64,
            limit: max as u64,
            retry_after_ms: None,
            client_id: self.id.clone(),
        };
        self.refuse_exceeded(gate, RefusalReason::Payload, exceeded)
    }

    /// Refuses a message that a store denied; `first` is the index of its first charge there.
    fn refuse_denied(&mut self, gate: &Inner<D>, denial: &Denial, first: usize) -> RefusedMessage {
        let retry_after_ms = RetryAfter::of(denial.retry).map(RetryAfter::millis);
        if denial.degraded == Some(FailureRule::Closed) {
            let frame = RefusalReason::StoreUnavailable.frame().with_hint(retry_after_ms);
            return refuse_with(RefusalReason::StoreUnavailable, &frame);
        }
        let charge = self.charges.list().get(first + denial.binding);
        let observed = charge.map_or(0, |charge| charge.cost);
        let limit = denial.outcomes.get(denial.binding).map_or(0, |outcome| outcome.capacity);
        let policy = charge.map(|charge| gate.limiters.policy(charge.limiter_index));
        let is_exhausted = matches!(policy, Some(Policy::Allowance(_))) && observed <= limit;
        let reason = match retry_after_ms {
            Some(_) => RefusalReason::Rate,
            None if is_exhausted
                && charge.map(|charge| charge.limiter_index) == gate.limiters.ceiling() =>
            {
                RefusalReason::ConnectionUsedUp
            }
            None if is_exhausted => RefusalReason::AllowanceUsedUp,
            None => RefusalReason::AboveCapacity,
        };
        let (kind, client_id) = (LimitKind::Rate, self.id.clone());
        let exceeded = LimitExceeded { kind, observed, limit, retry_after_ms, client_id };
        self.refuse_exceeded(gate, reason, exceeded)
    }

    fn refuse_exceeded(
        &mut self,
        gate: &Inner<D>,
        reason: RefusalReason,
        exceeded: LimitExceeded,
    ) -> RefusedMessage {
        let refusal = gate.refuse_exceeded(reason, exceeded);
        self.is_closing = refusal.reply().is_close();
        refusal
    }
}

impl<D> Connection<D> {
    /// Returns the id of the connection.
    #[must_use]
    pub const fn id(&self) -> &ClientId {
        &self.id
    }

    /// Returns the application's data.
    #[must_use]
    pub const fn data(&self) -> &D {
        &self.data
    }

    /// Returns the application's data for changes. A user set here counts from the next message on.
    pub const fn data_mut(&mut self) -> &mut D {
        &mut self.data
    }
}

impl<D> fmt::Debug for Connection<D> {
    /// Hides all fields, because they may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// A frame that is being decided.
struct Message<'a> {
    frame: &'a [u8],
    label: Result<TypeLabel<'a>, FrameError>,
    received_at: WallTime,
}

/// Why a frame is not a valid message, and charged to the ceiling alone.
enum FrameError {
    TooLarge { max: usize },
    NoType,
    InvalidCost,
}

impl Message<'_> {
    fn context<'c, D>(
        &self,
        label: &'c TypeLabel<'_>,
        id: &'c str,
        ip: Option<&'c str>,
        data: &'c D,
    ) -> IngressContext<'c, D> {
        IngressContext::new(label.as_str(), id, ip, data, self.received_at)
    }
}

/// Creates a refusal that is not due to a limit and leaves the connection open.
fn refuse_without_limit(reason: RefusalReason) -> RefusedMessage {
    refuse_with(reason, &reason.frame())
}

/// Creates such a refusal with details in its frame.
fn refuse_with(reason: RefusalReason, frame: &ErrorFrame<'_>) -> RefusedMessage {
    RefusedMessage::new(reason, None, ReplyFrame::Send(frame.to_json()))
}
