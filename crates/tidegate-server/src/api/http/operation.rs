//! One operation on the engine, from its body to its response.
//!
//! Used for single requests and for batches. Nothing is decided here.

use std::time::Duration;

use tidegate::{Engine, Request, StoreError};
use tidegate_config::Value;
use tidegate_core::{Answer, Charge, Correction, Operation as StoreOperation, Target};

use super::answer::{self, Body, Deny, Extra, Reply};
use super::audit;
use super::hints::Hints;
use super::request::{Item, List, Reader, Reserve, Settle, Spend};
use super::tally;
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
    pub(super) fn named(name: &str) -> Option<Self> {
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
pub(super) enum Lines<'l> {
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

    pub(super) fn lines(&self) -> Lines<'_> {
        match self {
            Self::Take(Spend { list, .. })
            | Self::Peek(Spend { list, .. })
            | Self::Reserve(Reserve { list, .. }) => Lines::Charges(charges(list)),
            Self::Settle(Settle { list, .. }) => Lines::Corrections(corrections(list)),
            Self::Hold(_) | Self::Reset(_) => Lines::None,
        }
    }

    /// Creates the request to the engine. `lines` must be the [lines](Self::lines) of this
    /// operation.
    pub(super) fn request<'a>(
        &'a self,
        lines: &'a Lines<'a>,
        engine: &'a Engine,
    ) -> Request<'a, Answer> {
        let charges = lines.charges();
        engine.operation(match self {
            Self::Take(_) => StoreOperation::Take(charges),
            Self::Peek(_) => StoreOperation::Peek(charges),
            Self::Reserve(asked) => StoreOperation::Reserve { charges, horizon: asked.max_wait },
            Self::Settle(asked) => StoreOperation::Settle {
                corrections: lines.corrections(),
                receipt: asked.receipt.as_ref(),
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
            Self::Settle(asked) => asked.receipt.is_none() || audit::logs_settlements(),
            Self::Take(_) | Self::Peek(_) | Self::Reserve(_) => false,
        }
    }

    /// Returns the buckets that may have got tokens back.
    pub(super) fn opened(&self) -> Vec<Target<'_>> {
        match self {
            Self::Settle(asked) => asked.list.items.iter().map(Item::target).collect(),
            Self::Reset(item) => vec![item.target()],
            _ => Vec::new(),
        }
    }

    /// Returns the maximum length of the response, in bytes.
    pub(super) fn longest_answer(&self) -> usize {
        match self {
            Self::Take(Spend { list, receipt }) => longest(list, *receipt),
            Self::Peek(Spend { list, .. }) => longest(list, false),
            Self::Reserve(Reserve { list, .. }) => longest(list, true),
            Self::Settle(Settle { list, .. }) => longest(list, false),
            Self::Hold(_) | Self::Reset(_) => SHORT_ANSWER,
        }
    }

    /// Converts the result to a response, and counts decisions.
    pub(super) fn answered(
        &self,
        answer: Result<Answer, StoreError>,
        deny: Deny,
        hints: Hints<'_>,
    ) -> Result<Reply<Body<'_>>, Problem> {
        let hints = Some(hints);
        Ok(match self {
            Self::Take(asked) => {
                let decision = tally::of(typed(answer), &asked.list)?;
                let extra = if asked.receipt { Extra::Receipt } else { Extra::Nothing };
                answer::decided(&decision, &asked.list, extra, deny, hints)
            }
            Self::Peek(asked) => {
                answer::decided(&typed(answer)?, &asked.list, Extra::Nothing, deny, None)
            }
            Self::Reserve(asked) => {
                let decision = tally::of(typed(answer), &asked.list)?;
                answer::decided(&decision, &asked.list, Extra::WaitAndReceipt, deny, hints)
            }
            Self::Settle(asked) => answer::settled(&typed(answer)?, &asked.list),
            Self::Hold(_) => answer::held(typed(answer)?),
            Self::Reset(_) => answer::reset(typed(answer)?),
        })
    }
}

/// Maximum length of a response without a list: names of members, and numbers of 20 digits.
const SHORT_ANSWER: usize = 220;
/// Maximum length of one charge in a response, without the name of its limit.
const CHARGE: usize = 90;
/// Maximum length of a receipt, and of one charge in it.
const RECEIPT: usize = 40;
const STAMP: usize = 52;

fn longest<N>(list: &List<'_, N>, receipt: bool) -> usize {
    let names = list.items.iter().map(|item| item.limit.name().len());
    let (longest_name, all_names) = (names.clone().max().unwrap_or(0), names.sum::<usize>());
    let charges = if list.listed { all_names + list.items.len() * CHARGE } else { 0 };
    let receipt = if receipt { RECEIPT + list.items.len() * STAMP } else { 0 };
    SHORT_ANSWER + longest_name + charges + receipt
}

impl<'l> Lines<'l> {
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

fn typed<T>(answer: Result<Answer, StoreError>) -> Result<T, StoreError>
where
    T: TryFrom<Answer, Error = StoreError>,
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
