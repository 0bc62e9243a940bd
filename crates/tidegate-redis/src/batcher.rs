//! Batching: concurrent operations share script calls.
//!
//! One task takes operations from a queue and sends them. A single caller is sent at once. While
//! calls are in flight, further operations queue up and go with the next call, up to 64 together.
//! An operation whose caller is gone before it is sent is dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::connection::{Connection, ConnectionState};
use crate::error::{CallError, RedisStoreError};
use crate::format::number::Reader;
use crate::job::{Batch, Job, MAX_JOBS, MAX_KEYS, Replies, ScriptKind};

/// With fewer calls in flight than this, queued operations are sent at once: one call that the
/// server executes, and one that waits there.
const SEND_BELOW: usize = 2;
/// Full calls are sent while fewer than this are in flight: the server may be far away.
const SEND_FULL_BELOW: usize = 16;

/// Maximum number of times in a row that the other queue may go first.
const MAX_PASSED: usize = 2;

/// The operations of one caller, and the channel for their replies.
#[derive(Debug)]
pub(crate) struct QueuedCall {
    pub(crate) kind: ScriptKind,
    pub(crate) jobs: Vec<Job>,
    pub(crate) reply: oneshot::Sender<Result<Replies, CallError>>,
}

/// Sends queued calls until all senders are dropped.
pub(crate) async fn run(
    connection: Arc<Connection>,
    mut inbox: mpsc::UnboundedReceiver<QueuedCall>,
) {
    let calls_in_flight = Arc::new(InFlight::default());
    let mut queues = Queues::default();
    loop {
        while !queues.is_full() {
            let Ok(call) = inbox.try_recv() else { break };
            queues.add(call);
        }
        let in_flight = calls_in_flight.count.load(Ordering::Acquire);
        if !queues.is_empty()
            && (in_flight < SEND_BELOW || (queues.is_full() && in_flight < SEND_FULL_BELOW))
        {
            calls_in_flight.count.fetch_add(1, Ordering::AcqRel);
            let guard = InFlightGuard(calls_in_flight.clone());
            let (kind, calls) = queues.next_batch();
            send(&connection, kind, calls, guard);
            continue;
        }
        tokio::select! {
            () = calls_in_flight.finished.notified(), if !queues.is_empty() => {}
            call = inbox.recv(), if !queues.is_full() => match call {
                Some(call) => queues.add(call),
                None => return,
            }
        }
    }
}

/// Counts the calls in flight.
#[derive(Debug, Default)]
struct InFlight {
    count: AtomicUsize,
    finished: Notify,
}

/// Marks a call as finished on drop.
#[derive(Debug)]
struct InFlightGuard(Arc<InFlight>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.finished.notify_one();
    }
}

/// Queued calls by kind: the two kinds do not share a script call.
#[derive(Debug, Default)]
struct Queues {
    short: Queue,
    long: Queue,
}

impl Queues {
    fn add(&mut self, call: QueuedCall) {
        match call.kind {
            ScriptKind::Short => self.short.add(call),
            ScriptKind::Long => self.long.add(call),
        }
    }

    fn is_empty(&self) -> bool {
        self.short.calls.is_empty() && self.long.calls.is_empty()
    }

    fn is_full(&self) -> bool {
        self.short.is_full() || self.long.is_full()
    }

    /// Takes the next batch, from the queue that is nearer to full. A queue that was passed over
    /// too often goes first, so neither starves.
    fn next_batch(&mut self) -> (ScriptKind, Vec<QueuedCall>) {
        let urgent = |queue: &Queue| !queue.calls.is_empty() && queue.passed >= MAX_PASSED;
        let short = match (urgent(&self.short), urgent(&self.long)) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => self.short.jobs >= self.long.jobs && !self.short.calls.is_empty(),
        };
        let (kind, first, other) = if short {
            (ScriptKind::Short, &mut self.short, &mut self.long)
        } else {
            (ScriptKind::Long, &mut self.long, &mut self.short)
        };
        other.passed += 1;
        (kind, first.next_batch())
    }
}

/// Queued calls in order of arrival.
#[derive(Debug, Default)]
struct Queue {
    calls: VecDeque<QueuedCall>,
    jobs: usize,
    keys: usize,
    /// How often in a row the other queue went first.
    passed: usize,
}

impl Queue {
    fn add(&mut self, call: QueuedCall) {
        self.jobs += call.jobs.len();
        self.keys += keys(&call);
        self.calls.push_back(call);
    }

    fn is_full(&self) -> bool {
        self.jobs >= MAX_JOBS || self.keys >= MAX_KEYS || self.calls.len() >= MAX_JOBS
    }

    /// Takes as many calls as fit, at least one, and drops those whose caller is gone.
    fn next_batch(&mut self) -> Vec<QueuedCall> {
        self.passed = 0;
        let (mut calls, mut jobs, mut all_keys) = (Vec::new(), 0, 0);
        while let Some(call) = self.calls.pop_front() {
            let (own_jobs, own_keys) = (call.jobs.len(), keys(&call));
            let fits = jobs + own_jobs <= MAX_JOBS && all_keys + own_keys <= MAX_KEYS;
            if !fits && !calls.is_empty() {
                self.calls.push_front(call);
                break;
            }
            (self.jobs, self.keys) = (self.jobs - own_jobs, self.keys - own_keys);
            if !call.reply.is_closed() {
                (jobs, all_keys) = (jobs + own_jobs, all_keys + own_keys);
                calls.push(call);
            }
        }
        calls
    }
}

fn keys(call: &QueuedCall) -> usize {
    call.jobs.iter().map(Job::keys).sum()
}

/// Starts a call, or fails it if there is no connection.
fn send(
    connection: &Arc<Connection>,
    kind: ScriptKind,
    calls: Vec<QueuedCall>,
    guard: InFlightGuard,
) {
    match connection.state() {
        _ if calls.is_empty() => {}
        ConnectionState::Up(handle, number) => {
            let handle = (handle, number);
            tokio::spawn(execute(connection.clone(), handle, (kind, calls), guard));
        }
        ConnectionState::Down(fault) => fail(calls, &fault.into()),
        ConnectionState::Connecting => {
            let fault =
                RedisStoreError::NotConnected("the first attempt is in progress".to_owned());
            fail(calls, &fault.into());
        }
    }
}

/// Executes one call and distributes the replies to their callers.
async fn execute(
    connection: Arc<Connection>,
    handle: (MultiplexedConnection, u64),
    (kind, calls): (ScriptKind, Vec<QueuedCall>),
    guard: InFlightGuard,
) {
    let mut batch = Batch::new(kind);
    for call in &calls {
        batch.add(&call.jobs);
    }
    let reply = connection.call(handle, &batch).await;
    // The next call may start while these replies are distributed.
    drop(guard);
    match reply.and_then(|value| decode_replies(value).map_err(CallError::from)) {
        Ok(Replies { now_us, each }) => {
            let mut each = each.into_iter();
            for call in calls {
                let own: Vec<Vec<u8>> = each.by_ref().take(call.jobs.len()).collect();
                let complete = own.len() == call.jobs.len();
                let own = Replies { now_us, each: own };
                let reply =
                    if complete { Ok(own) } else { Err(RedisStoreError::InvalidReply.into()) };
                // The caller may be gone.
                let _ = call.reply.send(reply);
            }
        }
        Err(error) => fail(calls, &error),
    }
}

fn fail(calls: Vec<QueuedCall>, error: &CallError) {
    for call in calls {
        // The caller may be gone.
        let _ = call.reply.send(Err(error.clone()));
    }
}

/// Decodes the reply of the script: its time, then one reply per operation.
pub(crate) fn decode_replies(value: Value) -> Result<Replies, RedisStoreError> {
    let Value::Array(values) = value else { return Err(RedisStoreError::InvalidReply) };
    let mut bytes = values.into_iter().map(|value| match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(RedisStoreError::InvalidReply),
    });
    let now = bytes.next().ok_or(RedisStoreError::InvalidReply)??;
    let now_us = Reader(&now).number()?;
    Ok(Replies { now_us, each: bytes.collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::names::Names;
    use crate::job::{Code, Item};

    type ReplyReceiver = oneshot::Receiver<Result<Replies, CallError>>;

    fn call(jobs: usize) -> (QueuedCall, ReplyReceiver) {
        let item = Item { other: Some(Names::default().nodes()), ..Item::default() };
        let (reply, reply_receiver) = oneshot::channel();
        let jobs = (0..jobs).map(|_| Job::new(Code::Heartbeat).with(item.clone())).collect();
        (QueuedCall { kind: ScriptKind::Long, jobs, reply }, reply_receiver)
    }

    #[test]
    fn batches_have_at_most_64_operations() {
        let (mut queues, mut waiting) = (Queues::default(), Vec::new());
        for _ in 0..101 {
            let (call, reply_receiver) = call(1);
            queues.add(call);
            waiting.push(reply_receiver);
        }
        assert!(queues.is_full());
        assert_eq!(queues.next_batch().1.len(), MAX_JOBS);
        assert!(!queues.is_full());
        assert_eq!(queues.next_batch().1.len(), 37);
        assert!(queues.is_empty());
        // A call that fills a batch goes alone, and the next one does not overtake it.
        for jobs in [60, 5, 1] {
            let (call, reply_receiver) = call(jobs);
            queues.add(call);
            waiting.push(reply_receiver);
        }
        assert_eq!([queues.next_batch().1.len(), queues.next_batch().1.len()], [1, 2]);
    }

    /// A caller may give up while calls are in flight. Its operations are then not executed.
    #[test]
    fn calls_of_dropped_callers_are_not_sent() {
        let mut queues = Queues::default();
        let (first, first_receiver) = call(1);
        let (second, _second_receiver) = call(2);
        queues.add(first);
        queues.add(second);
        drop(first_receiver);
        let (_, calls) = queues.next_batch();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].jobs.len(), 2);
        assert_eq!((queues.long.jobs, queues.long.keys), (0, 0));
    }

    /// The two kinds do not share a call, and neither starves the other.
    #[test]
    fn neither_kind_starves() {
        let (mut queues, mut waiting) = (Queues::default(), Vec::new());
        let mut kinds = Vec::new();
        for _ in 0..6 {
            for kind in [ScriptKind::Short, ScriptKind::Short, ScriptKind::Long] {
                let (mut call, reply_receiver) = call(1);
                call.kind = kind;
                queues.add(call);
                waiting.push(reply_receiver);
            }
            kinds.push(queues.next_batch().0);
        }
        assert_eq!(
            kinds[..4],
            [ScriptKind::Short, ScriptKind::Short, ScriptKind::Long, ScriptKind::Short]
        );
        while !queues.is_empty() {
            assert!(!queues.next_batch().1.is_empty());
        }
    }
}
