//! Messages from and to the types of the core.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_core::{
    Charge, ChargeError, Correction, Decision, Denial, Grant, Key, Limit, Operation, Outcome,
    Outcomes, Receipt, ReceiptError, Retry, Settlement, StoreError, StoreResponse, Target, Time,
    Windows,
};

use super::{
    ChargeMessage, CorrectionMessage, ErrorMessage, LimitMessage, OperationMessage, OutcomeMessage,
    PolicyMessage, ReceiptMessage, ReplyMessage, RetryMessage, TargetMessage,
};

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// What a client knows of its policy of a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicySync {
    /// The newest revision that all shards of the operation have confirmed, or that is in the same
    /// batch already. Earlier ones are not sent.
    pub confirmed: Option<u32>,
    /// How long the client has had its current policy.
    pub age: Duration,
}

impl TargetMessage {
    /// Creates the message of a target.
    #[must_use]
    pub fn new(target: &Target<'_>, sync: PolicySync) -> Self {
        Self {
            limit: LimitMessage::new(target.limit, sync),
            key: target.key.name().into(),
            group: target.key.group().map(Into::into),
            windows: target.windows.map(|windows| windows.bounds()),
        }
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> Key<'_> {
        let key = Key::new(&self.key);
        self.group.as_deref().map_or(key, |group| key.in_group(group))
    }

    pub(crate) fn windows(&self) -> Result<Option<Windows>, String> {
        self.windows
            .map(|bounds| Windows::new(bounds).ok_or("the bounds of windows must increase".into()))
            .transpose()
    }
}

impl LimitMessage {
    fn new(limit: &Limit, sync: PolicySync) -> Self {
        let policy = PolicyMessage::new(limit.policy());
        if limit.is_inline() {
            let fingerprint = limit.policy().fingerprint();
            let schedule = limit.identity().strip_prefix(&*fingerprint);
            let schedule = schedule.and_then(|rest| rest.strip_prefix(' ')).map(Into::into);
            return Self { schedule, policy, ..Self::default() };
        }
        // A revision that the shard knows is the base of the later ones and need not be sent.
        let oldest = sync.confirmed.map_or(0, |confirmed| confirmed.saturating_add(1));
        let oldest = oldest.min(limit.generation());
        let all = (oldest..=limit.generation()).find_map(|from| limit.revisions_since(from));
        let mut all: Vec<_> = all
            .into_iter()
            .flatten()
            .map(|revision| (revision.change().into(), PolicyMessage::new(revision.policy())))
            .collect();
        let change = all.pop().map(|(change, _)| change).unwrap_or_default();
        Self {
            name: Some(limit.identity().into()),
            schedule: None,
            policy,
            generation: limit.generation(),
            change,
            past: all,
            age_ns: nanos(sync.age),
        }
    }
}

impl OperationMessage {
    /// Creates the message of an operation. Returns `None` for an operation that this format does
    /// not have.
    #[must_use]
    pub fn new(operation: &Operation<'_>, sync: impl Fn(&Limit) -> PolicySync) -> Option<Self> {
        let target = |target: &Target<'_>| TargetMessage::new(target, sync(target.limit));
        let charges = |charges: &[Charge<'_>]| {
            let charge = |c: &Charge<'_>| ChargeMessage { on: target(&c.target), cost: c.cost };
            charges.iter().map(charge).collect()
        };
        let targets = |targets: &[Target<'_>]| targets.iter().map(target).collect();
        let correction =
            |c: &Correction<'_>| CorrectionMessage { on: target(&c.target), delta: c.delta };
        Some(match *operation {
            Operation::Take(list) => Self::Take { charges: charges(list) },
            Operation::Peek(list) => Self::Peek { charges: charges(list), for_take: false },
            Operation::Reserve { charges: list, horizon } => Self::Reserve {
                charges: charges(list),
                horizon_ns: nanos(horizon),
                not_before_ns: 0,
            },
            Operation::Settle { corrections, receipt } => Self::Settle {
                corrections: corrections.iter().map(correction).collect(),
                receipt: receipt.map(ReceiptMessage::new),
            },
            Operation::Release { targets: list, receipt } => {
                Self::Release { targets: targets(list), receipt: ReceiptMessage::new(receipt) }
            }
            Operation::Renew { targets: list, receipt } => {
                Self::Renew { targets: targets(list), receipt: ReceiptMessage::new(receipt) }
            }
            Operation::Hold { target: one, span } => {
                Self::Hold { target: target(&one), span_ns: nanos(span) }
            }
            Operation::Reset { target: one } => Self::Reset { target: target(&one) },
            _ => return None,
        })
    }

    /// Returns the buckets of the operation, in order.
    pub fn targets(&self) -> Box<dyn Iterator<Item = &TargetMessage> + '_> {
        match self {
            Self::Take { charges } | Self::Peek { charges, .. } | Self::Reserve { charges, .. } => {
                Box::new(charges.iter().map(|charge| &charge.on))
            }
            Self::Settle { corrections, .. } => Box::new(corrections.iter().map(|c| &c.on)),
            Self::Release { targets, .. } | Self::Renew { targets, .. } => Box::new(targets.iter()),
            Self::Hold { target, .. } | Self::Reset { target } => {
                Box::new(core::iter::once(target))
            }
        }
    }

    /// Passes the limits of all buckets to `visit`, in order.
    pub(crate) fn for_each_limit(&mut self, visit: &mut dyn FnMut(&mut LimitMessage)) {
        match self {
            Self::Take { charges } | Self::Peek { charges, .. } | Self::Reserve { charges, .. } => {
                charges.iter_mut().for_each(|charge| visit(&mut charge.on.limit));
            }
            Self::Settle { corrections, .. } => {
                corrections.iter_mut().for_each(|correction| visit(&mut correction.on.limit));
            }
            Self::Release { targets, .. } | Self::Renew { targets, .. } => {
                targets.iter_mut().for_each(|target| visit(&mut target.limit));
            }
            Self::Hold { target, .. } | Self::Reset { target } => visit(&mut target.limit),
        }
    }
}

impl ReceiptMessage {
    /// Encodes a receipt.
    #[must_use]
    pub fn new(receipt: &Receipt) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = receipt.to_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
        Self(digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect())
    }

    /// Decodes the receipt.
    ///
    /// # Errors
    /// If the text is not a receipt, or one of another format.
    pub fn to_receipt(&self) -> Result<Receipt, ReceiptError> {
        let digit = |c: &u8| char::from(*c).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let digits: Option<Vec<u8>> = self.0.as_bytes().iter().map(digit).collect();
        let digits =
            digits.filter(|digits| digits.len() % 2 == 0).ok_or(ReceiptError::Malformed)?;
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        Receipt::from_bytes(&bytes)
    }
}

impl OutcomeMessage {
    pub(crate) fn new(outcome: &Outcome) -> Self {
        Self {
            capacity: outcome.capacity,
            remaining: outcome.remaining,
            reset_ns: outcome.reset.map(nanos),
            retry: outcome.retry.map(|retry| match retry {
                Retry::After(wait) => RetryMessage::AfterNs(nanos(wait)),
                Retry::OnRelease => RetryMessage::OnRelease,
                _ => RetryMessage::Never,
            }),
        }
    }

    pub(crate) fn to_outcome(self) -> Outcome {
        let retry = self.retry.map(|retry| match retry {
            RetryMessage::AfterNs(wait) => Retry::After(Duration::from_nanos(wait)),
            RetryMessage::OnRelease => Retry::OnRelease,
            RetryMessage::Never => Retry::Never,
        });
        let reset = self.reset_ns.map(Duration::from_nanos);
        Outcome::new(self.capacity, self.remaining, reset, retry)
    }
}

fn outcomes(messages: &[OutcomeMessage]) -> Outcomes {
    messages.iter().map(|outcome| outcome.to_outcome()).collect()
}

impl ReplyMessage {
    /// Creates the reply of a shard.
    #[must_use]
    pub fn new(result: &Result<StoreResponse, StoreError>) -> Self {
        let outcomes = |all: &[Outcome]| all.iter().map(OutcomeMessage::new).collect();
        match result {
            Ok(StoreResponse::Decision(Decision::Allowed(grant))) => Self::Allowed {
                wait_ns: nanos(grant.wait),
                receipt: (!grant.receipt.charges().is_empty())
                    .then(|| ReceiptMessage::new(&grant.receipt)),
                outcomes: outcomes(&grant.outcomes),
            },
            Ok(StoreResponse::Decision(decision)) => {
                Self::Denied { outcomes: outcomes(decision.outcomes()) }
            }
            Ok(StoreResponse::Settled(settlement)) => Self::Settled {
                saturated: settlement.saturated,
                dropped: settlement.dropped,
                applied: settlement.applied.to_vec(),
                outcomes: outcomes(&settlement.outcomes),
            },
            Ok(StoreResponse::HeldFor(span)) => Self::HeldNs(nanos(*span)),
            Ok(StoreResponse::Reset(existed)) => Self::Reset(*existed),
            Ok(StoreResponse::Slots(slots)) => Self::Slots(*slots),
            Ok(_) => Self::Error(ErrorMessage::Rejected("unknown response".into())),
            Err(error) => Self::Error(ErrorMessage::new(error)),
        }
    }

    /// Returns the response of the store.
    ///
    /// # Errors
    /// The error of the operation; [`StoreError::Unavailable`] if the receipt cannot be read.
    pub fn to_response(&self) -> Result<StoreResponse, StoreError> {
        Ok(match self {
            Self::Allowed { wait_ns, receipt, outcomes: all } => {
                let receipt = receipt.as_ref().map(ReceiptMessage::to_receipt).transpose();
                let receipt = receipt
                    .map_err(|error| StoreError::Unavailable(alloc::format!("{error}").into()))?;
                let wait = Duration::from_nanos(*wait_ns);
                let grant = Grant::new(outcomes(all), wait, receipt.unwrap_or_default());
                StoreResponse::Decision(Decision::Allowed(grant))
            }
            Self::Denied { outcomes: all } => {
                StoreResponse::Decision(Decision::Denied(Denial::new(outcomes(all))))
            }
            Self::Settled { saturated, dropped, applied, outcomes: all } => {
                let applied = applied.iter().copied().collect();
                StoreResponse::Settled(Settlement::new(
                    outcomes(all),
                    *saturated,
                    *dropped,
                    applied,
                ))
            }
            Self::HeldNs(span) => StoreResponse::HeldFor(Duration::from_nanos(*span)),
            Self::Reset(existed) => StoreResponse::Reset(*existed),
            Self::Slots(slots) => StoreResponse::Slots(*slots),
            Self::Error(error) => return Err(error.to_error()),
        })
    }
}

impl ErrorMessage {
    pub(crate) fn new(error: &StoreError) -> Self {
        match error {
            StoreError::Charge(ChargeError::NoWindows(index)) => Self::NoWindows(*index),
            StoreError::Charge(ChargeError::OtherWindows(index)) => Self::OtherWindows(*index),
            StoreError::Receipt(ReceiptError::Malformed) => Self::ReceiptMalformed,
            StoreError::Receipt(ReceiptError::Format(format)) => Self::ReceiptFormat(*format),
            StoreError::Receipt(ReceiptError::Issuer) => Self::ReceiptIssuer,
            StoreError::Receipt(ReceiptError::Mismatch) => Self::ReceiptMismatch,
            StoreError::Full => Self::Full,
            StoreError::Rejected(reason) => Self::Rejected(alloc::format!("{reason}")),
            StoreError::Unavailable(reason) => Self::Unavailable(alloc::format!("{reason}")),
            other => Self::Rejected(alloc::format!("{other}")),
        }
    }

    pub(crate) fn to_error(&self) -> StoreError {
        match self {
            Self::NoWindows(index) => ChargeError::NoWindows(*index).into(),
            Self::OtherWindows(index) => ChargeError::OtherWindows(*index).into(),
            Self::ReceiptMalformed => ReceiptError::Malformed.into(),
            Self::ReceiptFormat(format) => ReceiptError::Format(*format).into(),
            Self::ReceiptIssuer => ReceiptError::Issuer.into(),
            Self::ReceiptMismatch => ReceiptError::Mismatch.into(),
            Self::Full => StoreError::Full,
            Self::Rejected(reason) => StoreError::Rejected(reason.clone().into()),
            Self::Unavailable(reason) => StoreError::Unavailable(reason.clone().into()),
        }
    }
}

/// Returns the instant `ns` nanoseconds after the Unix epoch on the clock of a shard.
pub(crate) fn time(ns: u64) -> Time {
    Time::from_nanos(ns)
}
