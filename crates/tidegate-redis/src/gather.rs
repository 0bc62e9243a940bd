//! Many callers, few calls: what waits at the same time goes together.
//!
//! One task takes operations off a queue and sends them, at most a few calls at a time. A caller
//! alone is sent at once. While calls are under way others gather, and go with the next one, up
//! to 64 together. An operation whose caller has left before it was sent is not sent.

use std::sync::Arc;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::error::{CallError, Fault};
use crate::job::{Batch, Job, MOST_JOBS, MOST_KEYS, Replies};
use crate::link::{Line, Link};
use crate::number::Reader;

/// How many calls are under way at most: one that the server works on, one that waits there.
const FLIGHTS: usize = 2;

/// The operations of one caller, and where their answers go.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) jobs: Vec<Job>,
    pub(crate) answer: oneshot::Sender<Result<Replies, CallError>>,
}

/// Sends what comes in until nobody is left who could send anything.
pub(crate) async fn gather(link: Arc<Link>, mut inbox: mpsc::UnboundedReceiver<Parcel>) {
    let flights = Arc::new(Semaphore::new(FLIGHTS));
    let mut next = None;
    loop {
        // First room, then passengers: those who come meanwhile go together.
        let Ok(permit) = flights.clone().acquire_owned().await else { return };
        let Some(first) = (match next.take() {
            Some(parcel) => Some(parcel),
            None => inbox.recv().await,
        }) else {
            return;
        };
        let boarded = board(first, &mut inbox);
        next = boarded.left_over;
        let parcels = boarded.parcels;
        match link.line() {
            Line::Up(connection) => {
                tokio::spawn(fly(link.clone(), connection, parcels, permit));
            }
            Line::Down(fault) => refuse(parcels, &fault.into()),
            Line::Trying => {
                let fault = Fault::NotConnected("the first try is under way".to_owned());
                refuse(parcels, &fault.into());
            }
        }
    }
}

/// Those who go with the next call.
#[derive(Debug)]
struct Boarded {
    parcels: Vec<Parcel>,
    /// Came, and did not fit any more.
    left_over: Option<Parcel>,
}

/// Gathers what is there already, as far as it fits. Whoever has left is left out.
fn board(first: Parcel, inbox: &mut mpsc::UnboundedReceiver<Parcel>) -> Boarded {
    let (mut parcels, mut jobs, mut keys) = (Vec::new(), 0, 0);
    let mut next = Some(first);
    while let Some(parcel) = next {
        let more_jobs = jobs + parcel.jobs.len();
        let more_keys = keys + parcel.jobs.iter().map(Job::keys).sum::<usize>();
        if !parcels.is_empty() && (more_jobs > MOST_JOBS || more_keys > MOST_KEYS) {
            return Boarded { parcels, left_over: Some(parcel) };
        }
        if !parcel.answer.is_closed() {
            (jobs, keys) = (more_jobs, more_keys);
            parcels.push(parcel);
        }
        next = inbox.try_recv().ok();
    }
    Boarded { parcels, left_over: None }
}

/// Carries one call out and hands the answers to their callers.
async fn fly(
    link: Arc<Link>,
    mut connection: MultiplexedConnection,
    parcels: Vec<Parcel>,
    permit: OwnedSemaphorePermit,
) {
    let mut batch = Batch::default();
    for parcel in &parcels {
        batch.add(&parcel.jobs);
    }
    let answer = link.call(&mut connection, &batch).await;
    // The next call may go while these answers are handed out.
    drop(permit);
    match answer.and_then(|value| replies(value).map_err(CallError::from)) {
        Ok(Replies { now_us, each }) => {
            let mut each = each.into_iter();
            for parcel in parcels {
                let own: Vec<Vec<u8>> = each.by_ref().take(parcel.jobs.len()).collect();
                let complete = own.len() == parcel.jobs.len();
                let own = Replies { now_us, each: own };
                // Nobody may be waiting any more.
                let _ = parcel.answer.send(if complete {
                    Ok(own)
                } else {
                    Err(Fault::Nonsense.into())
                });
            }
        }
        Err(error) => refuse(parcels, &error),
    }
}

fn refuse(parcels: Vec<Parcel>, error: &CallError) {
    for parcel in parcels {
        // Nobody may be waiting any more.
        let _ = parcel.answer.send(Err(error.clone()));
    }
}

/// The answers of the script: its time, then one for each operation.
pub(crate) fn replies(value: Value) -> Result<Replies, Fault> {
    let Value::Array(values) = value else { return Err(Fault::Nonsense) };
    let mut bytes = values.into_iter().map(|value| match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(Fault::Nonsense),
    });
    let now = bytes.next().ok_or(Fault::Nonsense)??;
    let now_us = Reader(&now).number()?;
    Ok(Replies { now_us, each: bytes.collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Code, Item};
    use crate::names::Names;

    type Answered = oneshot::Receiver<Result<Replies, CallError>>;

    fn parcel(jobs: usize) -> (Parcel, Answered) {
        let item = Item { other: Some(Names::default().nodes()), ..Item::default() };
        let (answer, answered) = oneshot::channel();
        let jobs = (0..jobs).map(|_| Job::new(Code::Beat).with(item.clone())).collect();
        (Parcel { jobs, answer }, answered)
    }

    #[test]
    fn at_most_64_operations_go_together() {
        let (outbox, mut inbox) = mpsc::unbounded_channel();
        let (first, _kept) = parcel(1);
        let mut waiting = Vec::new();
        for _ in 0..100 {
            let (parcel, answered) = parcel(1);
            outbox.send(parcel).unwrap();
            waiting.push(answered);
        }
        let boarded = board(first, &mut inbox);
        assert_eq!(boarded.parcels.len(), MOST_JOBS);
        let boarded = board(boarded.left_over.unwrap(), &mut inbox);
        assert_eq!(boarded.parcels.len(), 37);
        assert!(boarded.left_over.is_none());
    }

    /// A caller may give up while calls are under way. What it asked for is then not done.
    #[test]
    fn who_has_left_is_not_sent() {
        let (outbox, mut inbox) = mpsc::unbounded_channel();
        let (first, gone) = parcel(1);
        drop(gone);
        let (second, _kept) = parcel(2);
        outbox.send(second).unwrap();
        let boarded = board(first, &mut inbox);
        assert_eq!(boarded.parcels.len(), 1);
        assert_eq!(boarded.parcels[0].jobs.len(), 2);
    }
}
