//! One operation on the engine, from its body to its response.
//!
//! Used for single requests and for batches. Nothing is decided here.

use std::time::Duration;

use tidegate::{Engine, Request, StoreError};
use tidegate_config::Value;
use tidegate_core::{Charge, Correction, Operation as StoreOperation, StoreResponse, Target};

use super::audit;
use super::decision_counter;
use super::hints::RetryHints;
use super::request::{Item, List, Reader, Reserve, Settle, Spend};
use super::response::{self, ApiResponse, Body, DenyStatus, ExtraFields};
use crate::api::problem::Problem;

/// The operations that the HTTP API offers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Take,
    Peek,
    Reserve,
    Settle,
    Hold,
    Reset,
}

impl Verb {
    /// All verbs, in the order in which they are listed to callers.
    pub(super) const ALL: [Self; 6] =
        [Self::Take, Self::Peek, Self::Reserve, Self::Settle, Self::Hold, Self::Reset];

    /// Returns the verb with this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }

    /// Returns the name used in paths and bodies.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Peek => "peek",
            Self::Reserve => "reserve",
            Self::Settle => "settle",
            Self::Hold => "hold",
            Self::Reset => "reset",
        }
    }
}

/// A valid request.
pub(super) enum Operation<'v> {
    Take(Spend<'v>),
    Peek(Spend<'v>),
    Reserve(Reserve<'v>),
    Settle(Settle<'v>),
    Hold(Item<'v, Duration>),
    Reset(Item<'v, ()>),
}

/// The list that is passed to the engine.
pub(super) enum OperationItems<'l> {
    None,
    Charges(Vec<Charge<'l>>),
    Corrections(Vec<Correction<'l>>),
}

impl<'v> Operation<'v> {
    pub(super) fn read(
        verb: Verb,
        reader: Reader<'v>,
        body: &'v Value<'v>,
    ) -> Result<Self, Problem> {
        Ok(match verb {
            Verb::Take => Self::Take(reader.take(body)?),
            Verb::Peek => Self::Peek(reader.peek(body)?),
            Verb::Reserve => Self::Reserve(reader.reserve(body)?),
            Verb::Settle => Self::Settle(reader.settle(body)?),
            Verb::Hold => Self::Hold(reader.hold(body)?),
            Verb::Reset => Self::Reset(reader.reset(body)?),
        })
    }

    pub(super) fn items(&self) -> OperationItems<'_> {
        match self {
            Self::Take(Spend { list, .. })
            | Self::Peek(Spend { list, .. })
            | Self::Reserve(Reserve { list, .. }) => OperationItems::Charges(charges(list)),
            Self::Settle(Settle { list, .. }) => OperationItems::Corrections(corrections(list)),
            Self::Hold(_) | Self::Reset(_) => OperationItems::None,
        }
    }

    /// Creates the request to the engine. `items` must be the [items](Self::items) of this
    /// operation.
    pub(super) fn request<'a>(
        &'a self,
        items: &'a OperationItems<'a>,
        engine: &'a Engine,
    ) -> Request<'a, StoreResponse> {
        let charges = items.charges();
        engine.operation(match self {
            Self::Take(_) => StoreOperation::Take(charges),
            Self::Peek(_) => StoreOperation::Peek(charges),
            Self::Reserve(request) => {
                StoreOperation::Reserve { charges, horizon: request.max_wait }
            }
            Self::Settle(request) => StoreOperation::Settle {
                corrections: items.corrections(),
                receipt: request.receipt.as_ref(),
            },
            Self::Hold(item) => StoreOperation::Hold { target: item.target(), span: item.amount },
            Self::Reset(item) => StoreOperation::Reset { target: item.target() },
        })
    }

    /// Returns whether the HTTP API audits this operation. Peeks are audited only in the admin API,
    /// where the caller is known.
    pub(super) fn is_audited(&self) -> bool {
        match self {
            Self::Hold(_) | Self::Reset(_) => true,
            Self::Settle(request) => request.receipt.is_none() || audit::logs_settlements(),
            Self::Take(_) | Self::Peek(_) | Self::Reserve(_) => false,
        }
    }

    /// Returns the buckets that may have got tokens back.
    pub(super) fn refunded_buckets(&self) -> Vec<Target<'_>> {
        match self {
            Self::Settle(request) => request.list.items.iter().map(Item::target).collect(),
            Self::Reset(item) => vec![item.target()],
            _ => Vec::new(),
        }
    }

    /// Returns the maximum length of the response, in bytes.
    pub(super) fn max_response_len(&self) -> usize {
        match self {
            Self::Take(Spend { list, receipt }) => max_len(list, *receipt),
            Self::Peek(Spend { list, .. }) => max_len(list, false),
            Self::Reserve(Reserve { list, .. }) => max_len(list, true),
            Self::Settle(Settle { list, .. }) => max_len(list, false),
            Self::Hold(_) | Self::Reset(_) => BASE_LEN,
        }
    }

    /// Converts the result to a response, and counts decisions.
    pub(super) fn respond(
        &self,
        answer: Result<StoreResponse, StoreError>,
        deny: DenyStatus,
        hints: RetryHints<'_>,
    ) -> Result<ApiResponse<Body<'_>>, Problem> {
        let hints = Some(hints);
        Ok(match self {
            Self::Take(request) => {
                let decision = decision_counter::count(into_typed(answer), &request.list)?;
                let extra = if request.receipt { ExtraFields::Receipt } else { ExtraFields::None };
                response::decision(&decision, &request.list, extra, deny, hints)
            }
            Self::Peek(request) => response::decision(
                &into_typed(answer)?,
                &request.list,
                ExtraFields::None,
                deny,
                None,
            ),
            Self::Reserve(request) => {
                let decision = decision_counter::count(into_typed(answer), &request.list)?;
                response::decision(
                    &decision,
                    &request.list,
                    ExtraFields::WaitAndReceipt,
                    deny,
                    hints,
                )
            }
            Self::Settle(request) => response::settlement(&into_typed(answer)?, &request.list),
            Self::Hold(_) => response::hold(into_typed(answer)?),
            Self::Reset(_) => response::reset(into_typed(answer)?),
        })
    }
}

/// Maximum length of a response without a list: names of members, and numbers of 20 digits.
const BASE_LEN: usize = 220;
/// Maximum length of one charge in a response, without the name of its limit.
const CHARGE_LEN: usize = 90;
/// Maximum length of a receipt, and of one charge in it.
const RECEIPT_LEN: usize = 40;
const RECEIPT_CHARGE_LEN: usize = 52;

fn max_len<N>(list: &List<'_, N>, receipt: bool) -> usize {
    let names = list.items.iter().map(|item| item.limit.name().len());
    let (max_name, all_names) = (names.clone().max().unwrap_or(0), names.sum::<usize>());
    let charges = if list.is_list { all_names + list.items.len() * CHARGE_LEN } else { 0 };
    let receipt = if receipt { RECEIPT_LEN + list.items.len() * RECEIPT_CHARGE_LEN } else { 0 };
    BASE_LEN + max_name + charges + receipt
}

impl<'l> OperationItems<'l> {
    fn charges(&self) -> &[Charge<'l>] {
        match self {
            Self::Charges(charges) => charges,
            _ => &[],
        }
    }

    fn corrections(&self) -> &[Correction<'l>] {
        match self {
            Self::Corrections(corrections) => corrections,
            _ => &[],
        }
    }
}

fn into_typed<T>(answer: Result<StoreResponse, StoreError>) -> Result<T, StoreError>
where
    T: TryFrom<StoreResponse, Error = StoreError>,
{
    answer.and_then(T::try_from)
}

fn charges<'l>(list: &'l List<'_, u64>) -> Vec<Charge<'l>> {
    list.items.iter().map(|item| Charge { target: item.target(), cost: item.amount }).collect()
}

fn corrections<'l>(list: &'l List<'_, i64>) -> Vec<Correction<'l>> {
    let items = list.items.iter();
    items.map(|item| Correction { target: item.target(), delta: item.amount }).collect()
}
