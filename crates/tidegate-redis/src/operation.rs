//! Execution of an operation: the job for the server, and the interpretation of its reply.

pub(crate) mod decide;
pub(crate) mod list_entry;
mod settle;

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::decide::DecisionMode;
use tidegate_core::{BucketEntry, Now, Receipt, StoreError, StoreResponse, Target, Time};

use crate::error::RedisStoreError;
use crate::format::entry::Entry;
use crate::format::names::Names;
use crate::format::number::{Reader, put_time, server_time};
use crate::format::script_args::ScriptArgs;
use crate::job::{Code, Item, Job, OperationStatus};
use list_entry::{Found, List};

/// Settings of a store that operations need: its key names, its issuer id in receipts, its time to
/// live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'s> {
    pub(crate) names: &'s Names,
    pub(crate) issuer: u64,
    pub(crate) ttl: Option<Duration>,
}

/// An operation whose limits are known to all nodes.
#[derive(Debug)]
pub(crate) enum PreparedOperation<'a> {
    Decide {
        list: List<'a>,
        mode: DecisionMode,
    },
    Settle {
        list: List<'a>,
        receipt: Option<&'a Receipt>,
    },
    /// Release or renew; no job if the receipt has no slots.
    Leases(Option<Job>),
    Hold {
        list: List<'a>,
        span: Duration,
    },
    Reset {
        list: List<'a>,
    },
}

/// What to do after a reply of the server.
#[derive(Debug)]
pub(crate) enum ReplyOutcome {
    Done(StoreResponse),
    /// Entries are under another policy: convert them and retry.
    Convert(SmallVec<[Found; 2]>),
    /// This node does not know the policy of this number for the limit of this bucket: learn it and
    /// retry.
    Learn(usize, u64),
    /// Nothing was done: an earlier operation must be executed again first, or the short script
    /// does not support it.
    Retry,
}

impl<'a> PreparedOperation<'a> {
    /// Builds the job for the server; `None` if the result is known without it.
    pub(crate) fn job(&self, context: Context<'_>) -> Result<Option<Job>, StoreError> {
        Ok(Some(match self {
            Self::Decide { list, mode } => decide::job(list, *mode, context)?,
            Self::Settle { list, receipt } => settle::job(list, *receipt, context)?,
            Self::Leases(job) => return Ok(job.clone()),
            Self::Hold { list, span } => {
                let mut job = Job::new(Code::Hold);
                put_time(Time::ZERO.after(*span), job.head());
                job.with(list[0].item(context.names, 0, context.ttl)?)
            }
            Self::Reset { list } => {
                let (name, target) = (&list[0].name, &list[0].target);
                let (entry, other) = (Some(name.clone()), Some(context.names.slots(target)));
                Job::new(Code::Reset).with(Item { entry, other, ..Item::default() })
            }
        }))
    }

    /// Interprets the reply of the server.
    pub(crate) fn interpret(
        &self,
        reply: &[u8],
        now_us: u64,
        context: Context<'_>,
    ) -> Result<ReplyOutcome, StoreError> {
        let now = server_time(now_us);
        let mut reader = Reader(reply);
        match self {
            Self::Decide { list, mode } => {
                decide::interpret(list, *mode, &mut reader, now, context)
            }
            Self::Settle { list, receipt } => settle::interpret(list, *receipt, &mut reader, now),
            // All other operations are either done or skipped.
            _ => match OperationStatus::read(&mut reader)? {
                OperationStatus::Skipped => Ok(ReplyOutcome::Retry),
                OperationStatus::Done => Ok(ReplyOutcome::Done(self.done(&mut reader, now)?)),
                _ => Err(RedisStoreError::InvalidReply.into()),
            },
        }
    }

    /// Returns the result of a completed operation that is not a list.
    fn done(&self, reader: &mut Reader<'_>, now: Now) -> Result<StoreResponse, RedisStoreError> {
        match self {
            Self::Leases(_) => Ok(StoreResponse::Slots(reader.number()?)),
            Self::Hold { .. } => Ok(StoreResponse::HeldFor(reader.time()?.since(now.time))),
            Self::Reset { list } => reset_answer(list, reader, now),
            Self::Decide { .. } | Self::Settle { .. } => Err(RedisStoreError::InvalidReply),
        }
    }

    /// Returns the list of the operation, if it has one.
    pub(crate) fn list(&self) -> Option<&List<'a>> {
        match self {
            Self::Decide { list, .. }
            | Self::Settle { list, .. }
            | Self::Hold { list, .. }
            | Self::Reset { list } => Some(list),
            Self::Leases(_) => None,
        }
    }
}

/// Returns whether a reset removed anything. Foreign data is removed too: that is what an operator
/// wants.
fn reset_answer(
    list: &List<'_>,
    reader: &mut Reader<'_>,
    now: Now,
) -> Result<StoreResponse, RedisStoreError> {
    let (listed, entry) = (&list[0], Entry::read(reader)?);
    let (taken, foreign) = (reader.number()?, reader.byte()? == 1);
    let effective_state = entry.effective_state(&listed.history, now.time);
    let mut account =
        BucketEntry::new(listed.policy(), effective_state.state, effective_state.held_until, 0);
    if listed.has_slots() {
        account.set_taken(taken);
    } else if let Some(windows) = &listed.target.windows {
        // If the windows do not include the present, the account stays as it is.
        let _ = account.open_window(windows, now);
    }
    let outcome = account.outcome(now, None);
    let held = effective_state.held_until > now.time;
    let removed = foreign || held || taken > 0 || outcome.remaining < outcome.capacity;
    Ok(StoreResponse::Reset(removed))
}

/// Builds the job of a release or a renewal; `None` if the receipt has no slots.
pub(crate) fn lease_job<'t>(
    code: Code,
    leases: impl Iterator<Item = (&'t Target<'t>, u64, Option<ScriptArgs>)>,
    names: &Names,
) -> Option<Job> {
    let mut job = Job::new(code);
    let mut seen: SmallVec<[u64; 4]> = SmallVec::new();
    for (target, lease, args) in leases {
        // Equal buckets of a list share one lease.
        if seen.contains(&lease) {
            continue;
        }
        seen.push(lease);
        let tail = SmallVec::from_slice(&lease.to_le_bytes());
        job.push(Item { entry: None, other: Some(names.slots(target)), args, tail });
    }
    (!seen.is_empty()).then_some(job)
}
