//! One connection, and the steps that each of its messages passes.
//!
//! 1. size, 2. type, 3. limits, 4. messages in flight, 5. validation, 6. the handler.
//!
//! Nothing here reads or writes a socket: frames come in as bytes, and the result is a token for
//! the handler or a reply for the client. Only step 3 may have to wait, and only on a shared store.
//!
//! Frames that fail step 1 or 2 still pass step 3, to be charged to the ceiling of the connection:
//! otherwise invalid frames would be unlimited.

pub(crate) mod charges;
pub(crate) mod connection_keys;
pub(crate) mod slots;
mod store_call;

use std::fmt;
use std::sync::Arc;

use tidegate::{Denial, Policy, StoreError};
use tidegate_core::WallTime;
use tidegate_http::field::RetryAfter;

use crate::connection::charges::{BadCost, MessageCharges};
use crate::connection::connection_keys::ConnectionKeys;
use crate::connection::store_call::Ruling;
use crate::context::{Identity, IngressContext};
use crate::error_frame::{RELEASE_HINT_MS, RefusalReason};
use crate::exceeded::{LimitExceeded, LimitKind};
use crate::gate::Inner;
use crate::gate::types::Label;
use crate::key::connection_key;
use crate::message_decision::{
    AcceptedMessage, InFlight, MessageDecision, RefusedMessage, ReplyFrame,
};
use crate::peer::{ClientId, Peer, folded};

/// One client connection of a gate, made by [`Gate::connect`](crate::Gate::connect).
///
/// Pass it every text and binary frame, and only those: pings, pongs and close frames are not
/// charged.
///
/// After a close frame for the client, all further frames are refused without a reply. They are
/// neither charged nor handled.
///
/// Dropping it resets the buckets that belong to this connection alone: immediately on a local
/// store, in a task on a shared one. It tracks [`MAX_CONNECTION_KEYS`](crate::MAX_CONNECTION_KEYS)
/// of them. Buckets beyond that number remain in the store, and so do all of them if the process
/// crashes, the store is unavailable, or there is no tokio runtime for the task. The store drops
/// token buckets once they are full; the bucket of an [allowance](tidegate::Policy::allowance)
/// stays until it is [reset](tidegate::Limiter::reset). Messages that are still being handled keep
/// their slots.
pub struct Connection<D> {
    gate: Arc<Inner<D>>,
    id: ClientId,
    ip: Option<Box<str>>,
    data: D,
    charges: MessageCharges,
    in_flight: InFlight,
    own_keys: Arc<ConnectionKeys>,
    /// Whether a close frame was returned; frames sent before the client reads it still arrive.
    is_closing: bool,
}

impl<D: Identity> Connection<D> {
    pub(crate) fn new(gate: Arc<Inner<D>>, peer: Peer<D>) -> Self {
        let id = peer.id.unwrap_or_else(|| gate.ids.next());
        let own_keys = Arc::new(ConnectionKeys::new(gate.limiters.clone()));
        Self {
            id: ClientId::new(&id),
            ip: peer.ip.map(folded),
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
    /// If the future is dropped while a shared store decides, the message may have been charged. A
    /// task then releases its slots. Without a tokio runtime they are released when their lease
    /// expires or, without a lease, when their key is reset.
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
    /// Returns an error if the store is unavailable. Do not handle the message then. The hook is
    /// not called, because no limit was exceeded. To decide without the store, wrap it in a guard
    /// (`tidegate::guard`).
    pub async fn ingress(
        &mut self,
        frame: impl AsRef<[u8]>,
    ) -> Result<MessageDecision, StoreError> {
        let frame = frame.as_ref();
        let gate = Arc::clone(&self.gate);
        let message = match self.begin(&gate, frame) {
            Ok(message) => message,
            Err(refusal) => return Ok(MessageDecision::Refused(refusal)),
        };
        let ruling = self.charges.ask(&gate.limiters, &self.own_keys).await?;
        Ok(self.finish(&gate, &message, ruling))
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
    fn begin<'a>(
        &mut self,
        gate: &'a Inner<D>,
        frame: &'a [u8],
    ) -> Result<Message<'a>, RefusedMessage> {
        if self.is_closing {
            return Err(RefusedMessage::new(RefusalReason::Closing, None, ReplyFrame::Nothing));
        }
        let label = match gate.max_payload {
            Some(max) if frame.len() > max => Err(Flaw::TooLarge { max }),
            _ => (gate.envelope)(frame).map(|raw| gate.types.label(raw)).ok_or(Flaw::NoType),
        };
        self.charges.clear();
        let message = Message { frame, label, received_at: gate.wall_time() };
        let (id, ip) = (self.id.as_str(), self.ip.as_deref());
        if let Ok(label) = &message.label {
            let context = message.context(label, id, ip, &self.data);
            let added = self.charges.add_rules(&gate.rules, gate.zero_is_free, &context);
            added.map_err(|BadCost| plain(RefusalReason::Cost))?;
        }
        if let Some(seat) = gate.ceiling {
            self.charges.add(seat, &connection_key(id), 1);
        }
        self.own_keys.note(&self.charges);
        Ok(message)
    }

    /// Steps after the store call: checks messages in flight, and validates.
    fn finish(
        &mut self,
        gate: &Inner<D>,
        message: &Message<'_>,
        ruling: Ruling,
    ) -> MessageDecision {
        let slots = match ruling {
            Ruling::Granted(slots) => slots,
            Ruling::Denied(denial) => return MessageDecision::Refused(self.limited(gate, &denial)),
            Ruling::Unknown => return MessageDecision::Refused(plain(RefusalReason::Rate)),
        };
        let label = match &message.label {
            Ok(label) => label,
            Err(flaw) => return MessageDecision::Refused(self.flawed(gate, message.frame, flaw)),
        };
        let place = match self.in_flight.enter(gate.max_in_flight) {
            Ok(place) => place,
            Err(taken) => {
                let frame = RefusalReason::InFlight
                    .frame()
                    .exceeding("in_flight", taken as u64 + 1, taken as u64)
                    .hint(Some(RELEASE_HINT_MS));
                let answer = ReplyFrame::Send(frame.to_json());
                return MessageDecision::Refused(RefusedMessage::new(
                    RefusalReason::InFlight,
                    None,
                    answer,
                ));
            }
        };
        let context = message.context(label, self.id.as_str(), self.ip.as_deref(), &self.data);
        if let Some(validate) = &gate.validate
            && let Err(invalid) = validate(&context, message.frame)
        {
            let frame = RefusalReason::Invalid.frame().saying(invalid.0);
            let answer = ReplyFrame::Send(frame.to_json());
            return MessageDecision::Refused(RefusedMessage::new(
                RefusalReason::Invalid,
                None,
                answer,
            ));
        }
        MessageDecision::Accepted(AcceptedMessage::new(label.to_shared(), place, slots))
    }

    /// Refuses a frame that is not a valid message.
    fn flawed(&mut self, gate: &Inner<D>, frame: &[u8], flaw: &Flaw) -> RefusedMessage {
        let Flaw::TooLarge { max } = *flaw else { return plain(RefusalReason::Unparseable) };
        let exceeded = LimitExceeded {
            kind: LimitKind::Payload,
            observed: frame.len() as u64,
            limit: max as u64,
            retry_after_ms: None,
            client_id: self.id.clone(),
        };
        self.exceeded(gate, RefusalReason::Payload, exceeded)
    }

    /// Refuses a message that the store denied.
    fn limited(&mut self, gate: &Inner<D>, denial: &Denial) -> RefusedMessage {
        let charge = self.charges.list().get(denial.by);
        let observed = charge.map_or(0, |charge| charge.cost);
        let limit = denial.outcomes.get(denial.by).map_or(0, |outcome| outcome.capacity);
        let policy = charge.map(|charge| *gate.limiters[charge.seat].snapshot().limit().policy());
        let is_used_up = matches!(policy, Some(Policy::Allowance(_))) && observed <= limit;
        let retry_after_ms = RetryAfter::of(denial.retry).map(RetryAfter::millis);
        let reason = match retry_after_ms {
            Some(_) => RefusalReason::Rate,
            None if is_used_up && charge.map(|charge| charge.seat) == gate.ceiling => {
                RefusalReason::ConnectionUsedUp
            }
            None if is_used_up => RefusalReason::AllowanceUsedUp,
            None => RefusalReason::AboveCapacity,
        };
        let (kind, client_id) = (LimitKind::Rate, self.id.clone());
        let exceeded = LimitExceeded { kind, observed, limit, retry_after_ms, client_id };
        self.exceeded(gate, reason, exceeded)
    }

    fn exceeded(
        &mut self,
        gate: &Inner<D>,
        reason: RefusalReason,
        exceeded: LimitExceeded,
    ) -> RefusedMessage {
        let refusal = gate.exceeded(reason, exceeded);
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
    label: Result<Label<'a>, Flaw>,
    received_at: WallTime,
}

/// Why a frame is not a valid message.
enum Flaw {
    TooLarge { max: usize },
    NoType,
}

impl Message<'_> {
    fn context<'c, D>(
        &self,
        label: &'c Label<'_>,
        id: &'c str,
        ip: Option<&'c str>,
        data: &'c D,
    ) -> IngressContext<'c, D> {
        IngressContext::new(label.as_str(), id, ip, data, self.received_at)
    }
}

/// Creates a refusal that is not due to a limit and leaves the connection open.
fn plain(reason: RefusalReason) -> RefusedMessage {
    RefusedMessage::new(reason, None, ReplyFrame::Send(reason.frame().to_json()))
}
