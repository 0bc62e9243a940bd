//! Take, peek and reserve.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::decide::{self, DecisionMode};
use tidegate_core::{
    BucketEntry, Decision, Denial, Grant, Now, Receipt, State, StoreError, StoreResponse, Time,
};

use crate::error::RedisStoreError;
use crate::format::number::{Reader, put_time};
use crate::job::{Code, Job, OperationStatus};
use crate::operation::list_entry::{Found, List, read_found};
use crate::operation::{Context, ReplyOutcome};

/// Builds the job for the server.
pub(crate) fn job(
    list: &List<'_>,
    mode: DecisionMode,
    context: Context<'_>,
) -> Result<Job, RedisStoreError> {
    let mut job = Job::new(match mode {
        DecisionMode::Take => Code::Take,
        DecisionMode::Peek => Code::Peek,
        DecisionMode::Reserve(_) => Code::Reserve,
    });
    if let DecisionMode::Reserve(horizon) = mode {
        let charged = list.iter().filter(|listed| listed.amount > 0);
        let policies = charged.map(|listed| listed.policy().horizon());
        let nearest = policies.fold(horizon, Duration::min);
        put_time(Time::ZERO.after(nearest), job.head());
    }
    for listed in list.iter() {
        let mut item = listed.item(context.names, listed.cost(), context.ttl)?;
        if mode != DecisionMode::Peek && listed.has_slots() {
            item.tail.extend(listed.lease.to_le_bytes());
        }
        job.push(item);
    }
    Ok(job)
}

/// Interprets the reply of the server.
pub(crate) fn interpret(
    list: &List<'_>,
    mode: DecisionMode,
    reader: &mut Reader<'_>,
    now: Now,
    context: Context<'_>,
) -> Result<ReplyOutcome, StoreError> {
    let status = list.status(reader, now)?;
    if matches!(status, OperationStatus::Skipped | OperationStatus::Unsupported) {
        return Ok(ReplyOutcome::Retry);
    }
    let found = read_found(list, reader)?;
    if status == OperationStatus::Stale || mode == DecisionMode::Peek {
        // Nothing was done, so it can be retried.
        if let Some((index, number)) = list.newer_policy(&found) {
            return Ok(ReplyOutcome::Learn(index, number));
        }
    }
    if status == OperationStatus::Stale {
        return Ok(ReplyOutcome::Convert(found));
    }
    let decision = decision(list, &found, mode, now, context)?;
    // The script and the core must reach the same decision from the same numbers.
    let agree =
        mode == DecisionMode::Peek || decision.is_allowed() == (status == OperationStatus::Done);
    if agree {
        Ok(ReplyOutcome::Done(StoreResponse::Decision(decision)))
    } else {
        Err(RedisStoreError::InvalidReply.into())
    }
}

fn decision(
    list: &List<'_>,
    found: &[Found],
    mode: DecisionMode,
    now: Now,
    context: Context<'_>,
) -> Result<Decision, StoreError> {
    let mut accounts = list.accounts(found, now)?;
    let Some(start) = decide::earliest_start(&accounts, mode.horizon(), now) else {
        let outcomes = decide::denied_outcomes(&accounts, list.order(), now);
        return Ok(Decision::Denied(Denial::new(outcomes)));
    };
    decide::spend(&mut accounts, start, now);
    let outcomes = decide::granted_outcomes(&accounts, list.order(), now);
    if mode == DecisionMode::Peek {
        return Ok(Decision::Allowed(Grant::new(outcomes, Duration::ZERO, Receipt::default())));
    }
    let states: SmallVec<[State; 2]> = accounts.iter().map(BucketEntry::state).collect();
    let receipt = Receipt::new(context.issuer, start, list.records(&states));
    Ok(Decision::Allowed(Grant::new(outcomes, start.since(now.time), receipt)))
}
