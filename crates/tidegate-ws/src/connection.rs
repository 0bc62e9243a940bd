//! One connection, and the steps that each of its messages takes.
//!
//! 1. size, 2. type, 3. limits, 4. messages in flight, 5. validation, 6. the handler.
//!
//! Nothing here reads or writes a socket: frames come in as bytes, and what comes out is a token
//! for the handler or an answer for the client. Only step 3 can take time, and only on a shared
//! store.

use std::fmt;
use std::sync::Arc;

use tidegate::{Decision, Denial, Policy, Retry, Snapshot, StoreError, WallTime};

use crate::bill::{BadCost, Bill};
use crate::context::{Identity, IngressContext};
use crate::error_frame::{RELEASE_HINT_MS, Reason, ceil_ms};
use crate::exceeded::{LimitExceeded, LimitKind};
use crate::gate::Inner;
use crate::peer::{ClientId, Peer, folded};
use crate::slots::{Belongings, Slots};
use crate::types::Label;
use crate::verdict::{Accepted, Answer, InFlight, Refusal, Verdict};

/// One connection through a gate, made by [`Gate::connect`](crate::Gate::connect).
///
/// Feed it every text and binary frame, and only those: pings, pongs and close frames are not
/// charged.
///
/// Once a client has been told to go it is refused without another word: frames that were under
/// way by then are neither charged nor handled.
///
/// When it is dropped, the buckets that belong to it alone are forgotten: at once in process, by
/// a task on a shared store. Messages that are still being handled keep their slots.
pub struct Connection<D> {
    gate: Arc<Inner<D>>,
    id: ClientId,
    ip: Option<Box<str>>,
    data: D,
    bill: Bill,
    in_flight: InFlight,
    belongings: Belongings,
    /// The client has been told to go. What it had sent before it read that still comes in.
    is_closing: bool,
}

impl<D: Identity> Connection<D> {
    pub(crate) fn new(gate: Arc<Inner<D>>, peer: Peer<D>) -> Self {
        let id = peer.id.unwrap_or_else(|| gate.ids.next());
        let belongings = Belongings::new(gate.limiters.clone(), gate.types.count());
        Self {
            id: ClientId::new(&id),
            ip: peer.ip.map(folded),
            data: peer.data,
            bill: Bill::default(),
            in_flight: InFlight::default(),
            belongings,
            is_closing: false,
            gate,
        }
    }

    /// Decides on a frame. In process the answer is there at the first poll.
    ///
    /// A future that is dropped while a shared store is being asked may have charged the message.
    ///
    /// ```
    /// # use tidegate_ws::{Gate, Peer, Verdict};
    /// # use tidegate::{Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Policy::per_second(1).build()?);
    /// let gate = Gate::for_types(["PING"]).limit(limiter).build()?;
    /// let mut connection = gate.connect(Peer::new(()));
    /// match connection.ingress(r#"{"type":"PING"}"#).await? {
    ///     Verdict::Accepted(accepted) => assert_eq!(accepted.message_type(), "PING"),
    ///     Verdict::Refused(refusal) => println!("tell the client: {:?}", refusal.answer()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the store cannot answer. The message is not to be handled then, and the hook is not
    /// told, since no limit was exceeded. A guard (`tidegate::guard`) around the store decides in
    /// its place.
    pub async fn ingress(&mut self, frame: impl AsRef<[u8]>) -> Result<Verdict, StoreError> {
        let frame = frame.as_ref();
        let gate = Arc::clone(&self.gate);
        let message = match self.begin(&gate, frame) {
            Ok(message) => message,
            Err(refusal) => return Ok(Verdict::Refused(refusal)),
        };
        let terms = self.bill.terms(&gate.limiters);
        let charges = self.bill.charges(&terms);
        let decision = match self.bill.request(&gate.limiters, &charges) {
            Some(request) => Some(request.await?),
            None => None,
        };
        drop(charges);
        Ok(self.finish(&gate, &message, &terms, decision))
    }

    /// Decides on a frame now if the store can without waiting for anything. `None` says that
    /// nothing has happened, and that [`ingress`](Self::ingress) is the way.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub fn ingress_now(&mut self, frame: impl AsRef<[u8]>) -> Option<Result<Verdict, StoreError>> {
        let frame = frame.as_ref();
        let gate = Arc::clone(&self.gate);
        let message = match self.begin(&gate, frame) {
            Ok(message) => message,
            Err(refusal) => return Some(Ok(Verdict::Refused(refusal))),
        };
        let terms = self.bill.terms(&gate.limiters);
        let charges = self.bill.charges(&terms);
        let decision = match self.bill.request(&gate.limiters, &charges) {
            Some(request) => match request.at_once()? {
                Ok(decision) => Some(decision),
                Err(error) => return Some(Err(error)),
            },
            None => None,
        };
        drop(charges);
        Some(Ok(self.finish(&gate, &message, &terms, decision)))
    }

    /// What key and cost functions would see of a message of this type that came now. The type is
    /// taken as it is.
    #[must_use]
    pub fn context<'a>(&'a self, message_type: &'a str) -> IngressContext<'a, D> {
        let received_at = self.gate.wall_time();
        let (id, ip) = (self.id.as_str(), self.ip.as_deref());
        IngressContext::new(message_type, id, ip, &self.data, received_at)
    }

    /// What comes before the store is asked: size, type, and what is to be charged.
    fn begin<'a>(&mut self, gate: &'a Inner<D>, frame: &'a [u8]) -> Result<Message<'a>, Refusal> {
        if self.is_closing {
            return Err(Refusal::new(Reason::Closing, None, Answer::Nothing));
        }
        if let Some(max) = gate.max_payload.filter(|max| frame.len() > *max) {
            let exceeded = LimitExceeded {
                kind: LimitKind::Payload,
                observed: frame.len() as u64,
                limit: max as u64,
                retry_after_ms: None,
                client_id: self.id.clone(),
            };
            return Err(self.exceeded(gate, Reason::Payload, exceeded));
        }
        let Some(raw) = (gate.envelope)(frame) else { return Err(plain(Reason::Unparseable)) };
        let message =
            Message { frame, label: gate.types.label(raw), received_at: gate.wall_time() };
        let (id, ip) = (self.id.as_str(), self.ip.as_deref());
        let context = message.context(id, ip, &self.data);
        let written = self.bill.write(&gate.rules, gate.ceiling, gate.zero_is_free, &context);
        written.map_err(|BadCost| plain(Reason::Cost))?;
        Ok(message)
    }

    /// What comes after the store has answered: messages in flight, and validation.
    fn finish(
        &mut self,
        gate: &Inner<D>,
        message: &Message<'_>,
        terms: &[Snapshot],
        decision: Option<Decision>,
    ) -> Verdict {
        let slots = match decision {
            Some(Decision::Allowed(grant)) => {
                self.belongings.add(&self.bill);
                Slots::of(&gate.limiters, &self.bill, terms, grant.receipt)
            }
            Some(Decision::Denied(denial)) => {
                return Verdict::Refused(self.limited(gate, terms, &denial));
            }
            // A kind of decision that is not known here is not a permission.
            Some(_) => return Verdict::Refused(plain(Reason::Rate)),
            None => None,
        };
        let place = match self.in_flight.enter(gate.max_in_flight) {
            Ok(place) => place,
            Err(taken) => {
                let frame = Reason::InFlight
                    .frame()
                    .exceeding("in_flight", taken as u64 + 1, taken as u64)
                    .hint(Some(RELEASE_HINT_MS));
                let answer = Answer::Send(frame.to_json());
                return Verdict::Refused(Refusal::new(Reason::InFlight, None, answer));
            }
        };
        let context = message.context(self.id.as_str(), self.ip.as_deref(), &self.data);
        if let Some(validate) = &gate.validate
            && let Err(invalid) = validate(&context, message.frame)
        {
            let frame = Reason::Invalid.frame().saying(invalid.0);
            let answer = Answer::Send(frame.to_json());
            return Verdict::Refused(Refusal::new(Reason::Invalid, None, answer));
        }
        Verdict::Accepted(Accepted::new(message.label.to_shared(), place, slots))
    }

    /// The refusal of a message that the store has denied.
    fn limited(&mut self, gate: &Inner<D>, terms: &[Snapshot], denial: &Denial) -> Refusal {
        let line = self.bill.lines().get(denial.by);
        let observed = line.map_or(0, |line| line.cost);
        let limit = denial.outcomes.get(denial.by).map_or(0, |outcome| outcome.capacity);
        let counted = terms.get(denial.by).map(|terms| *terms.limit().policy());
        let is_used_up = matches!(counted, Some(Policy::Allowance(_))) && observed <= limit;
        let (reason, retry_after_ms) = match denial.retry {
            Retry::After(wait) => (Reason::Rate, Some(ceil_ms(wait))),
            Retry::Never if is_used_up && line.map(|line| line.seat) == gate.ceiling => {
                (Reason::ConnectionUsedUp, None)
            }
            Retry::Never if is_used_up => (Reason::AllowanceUsedUp, None),
            Retry::Never => (Reason::AboveCapacity, None),
            // On release, and what else has no known end.
            _ => (Reason::Rate, Some(RELEASE_HINT_MS)),
        };
        let (kind, client_id) = (LimitKind::Rate, self.id.clone());
        let exceeded = LimitExceeded { kind, observed, limit, retry_after_ms, client_id };
        self.exceeded(gate, reason, exceeded)
    }

    fn exceeded(&mut self, gate: &Inner<D>, reason: Reason, exceeded: LimitExceeded) -> Refusal {
        let refusal = gate.exceeded(reason, exceeded);
        self.is_closing = matches!(refusal.answer(), Answer::Close { .. });
        refusal
    }
}

impl<D> Connection<D> {
    /// The id of the connection.
    #[must_use]
    pub const fn id(&self) -> &ClientId {
        &self.id
    }

    /// What the application knows of the connection.
    #[must_use]
    pub const fn data(&self) -> &D {
        &self.data
    }

    /// The same, to be changed: a client that logs in is another user from the next message on.
    pub const fn data_mut(&mut self) -> &mut D {
        &mut self.data
    }
}

impl<D> fmt::Debug for Connection<D> {
    /// Whom it connects is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// A message between its first step and its last.
struct Message<'a> {
    frame: &'a [u8],
    label: Label<'a>,
    received_at: WallTime,
}

impl Message<'_> {
    fn context<'c, D>(
        &'c self,
        id: &'c str,
        ip: Option<&'c str>,
        data: &'c D,
    ) -> IngressContext<'c, D> {
        IngressContext::new(self.label.as_str(), id, ip, data, self.received_at)
    }
}

/// A refusal that no limit is the reason of, and that leaves the connection open.
fn plain(reason: Reason) -> Refusal {
    Refusal::new(reason, None, Answer::Send(reason.frame().to_json()))
}
