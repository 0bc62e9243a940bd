//! Records the last operations of a case and the answers of the store, one line each, for the
//! report of a failed case.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{self, Display};

use tidegate_core::{Decision, Operation, Outcome, Retry, StoreError, StoreResponse, Target};

/// Number of operations in a report.
const MAX_OPERATIONS: usize = 4;

thread_local! {
    /// The transcript of the case on this thread; a case never changes threads.
    static TRANSCRIPT: RefCell<Transcript> = const {
        RefCell::new(Transcript { millis: 0, lines: VecDeque::new() })
    };
}

struct Transcript {
    millis: u64,
    lines: VecDeque<String>,
}

/// Clears the transcript for a new case.
pub(super) fn begin() {
    TRANSCRIPT.with_borrow_mut(|transcript| transcript.lines.clear());
}

/// Records that the store's clock was set, in milliseconds after the start.
pub(super) fn set_time(millis: u64) {
    TRANSCRIPT.with_borrow_mut(|transcript| transcript.millis = millis);
}

/// Records an operation and its answer.
pub(super) fn record(operation: &str, answer: &Result<StoreResponse, StoreError>) {
    TRANSCRIPT.with_borrow_mut(|transcript| {
        if transcript.lines.len() == MAX_OPERATIONS {
            transcript.lines.pop_front();
        }
        let line = format!("at {} ms: {operation} -> {}", transcript.millis, Summary(answer));
        transcript.lines.push_back(line);
    });
}

/// Formats the report of a failed case.
pub(super) fn report(case: &str, failure: &str) -> String {
    let lines = TRANSCRIPT.with_borrow(|transcript| transcript.lines.clone());
    let mut report = format!("conformance case {case} failed: {failure}\n");
    report.push_str("(left: what the store answered; right: what was expected)\n");
    report.push_str("last operations and answers:");
    for line in lines {
        report.push_str("\n  ");
        report.push_str(&line);
    }
    report
}

/// Formats an operation or an answer on one line.
pub(super) struct Summary<T>(pub(super) T);

impl Display for Summary<&Operation<'_>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let charges = |f: &mut fmt::Formatter<'_>, charges: &[tidegate_core::Charge<'_>]| {
            write_list(f, charges, |f, charge| {
                write!(f, "{} of {}", charge.cost, Summary(charge.target))
            })
        };
        let targets = |f: &mut fmt::Formatter<'_>, targets: &[Target<'_>]| {
            write_list(f, targets, |f, target| Summary(*target).fmt(f))
        };
        match self.0 {
            Operation::Take(list) => {
                f.write_str("take ")?;
                charges(f, list)
            }
            Operation::Peek(list) => {
                f.write_str("peek ")?;
                charges(f, list)
            }
            Operation::Reserve { charges: list, horizon } => {
                f.write_str("reserve ")?;
                charges(f, list)?;
                write!(f, " within {horizon:?}")
            }
            Operation::Settle { corrections, receipt } => {
                f.write_str("settle ")?;
                write_list(f, corrections, |f, correction| {
                    write!(f, "{:+} of {}", correction.delta, Summary(correction.target))
                })?;
                f.write_str(if receipt.is_some() { " with a receipt" } else { "" })
            }
            Operation::Release { targets: list, .. } => {
                f.write_str("release ")?;
                targets(f, list)
            }
            Operation::Renew { targets: list, .. } => {
                f.write_str("renew ")?;
                targets(f, list)
            }
            Operation::Hold { target, span } => write!(f, "hold {} for {span:?}", Summary(*target)),
            Operation::Reset { target } => write!(f, "reset {}", Summary(*target)),
            other => write!(f, "{other:?}"),
        }
    }
}

impl Display for Summary<Target<'_>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { limit, key, .. } = self.0;
        write!(f, "{}[{:?}", limit.name(), key.name())?;
        match key.group() {
            Some(group) => write!(f, " in {group:?}]"),
            None => f.write_str("]"),
        }
    }
}

impl Display for Summary<&Result<StoreResponse, StoreError>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(StoreResponse::Decision(decision)) => Summary(decision).fmt(f),
            Ok(StoreResponse::Settled(settlement)) => {
                write!(f, "settled {:?}", settlement.applied)?;
                if settlement.saturated + settlement.dropped > 0 {
                    let (saturated, dropped) = (settlement.saturated, settlement.dropped);
                    write!(f, " ({saturated} saturated, {dropped} dropped)")?;
                }
                write_remaining(f, &settlement.outcomes)
            }
            Ok(StoreResponse::HeldFor(span)) => write!(f, "held for {span:?}"),
            Ok(StoreResponse::Reset(true)) => f.write_str("forgotten"),
            Ok(StoreResponse::Reset(false)) => f.write_str("nothing to forget"),
            Ok(StoreResponse::Slots(slots)) => write!(f, "{slots} slots"),
            Ok(other) => write!(f, "{other:?}"),
            Err(error) => {
                write!(f, "error: {error}")?;
                match std::error::Error::source(error) {
                    Some(source) => write!(f, ": {source}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Display for Summary<&Decision> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Decision::Allowed(grant) if grant.wait.is_zero() => f.write_str("allowed")?,
            Decision::Allowed(grant) => write!(f, "allowed after {:?}", grant.wait)?,
            Decision::Denied(denial) => match denial.retry {
                Retry::After(wait) => write!(f, "denied, retry after {wait:?}")?,
                Retry::OnRelease => f.write_str("denied, retry on release")?,
                _ => f.write_str("denied for good")?,
            },
            other => write!(f, "{other:?}")?,
        }
        write_remaining(f, self.0.outcomes())
    }
}

fn write_remaining(f: &mut fmt::Formatter<'_>, outcomes: &[Outcome]) -> fmt::Result {
    f.write_str("; left ")?;
    write_list(f, outcomes, |f, outcome| write!(f, "{}/{}", outcome.remaining, outcome.capacity))
}

fn write_list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    show: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    // Lists of maximum length would fill the screen.
    const MAX_ITEMS: usize = 4;
    for (index, item) in items.iter().take(MAX_ITEMS).enumerate() {
        f.write_str(if index > 0 { ", " } else { "" })?;
        show(f, item)?;
    }
    match items.len().saturating_sub(MAX_ITEMS) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}
