//! Many callers, few calls: what waits at the same time goes together.
//!
//! One task takes operations off a queue and sends them. A caller alone is sent at once. While
//! calls are under way others gather, and go with the next one, up to 64 together. An operation
//! whose caller has left before it was sent is not sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::connection::{Line, Link};
use crate::error::{CallError, Fault};
use crate::format::number::Reader;
use crate::job::{Batch, Job, Kind, MOST_JOBS, MOST_KEYS, Replies};

/// With fewer calls under way than this, whoever waits is sent at once: one call that the server
/// works on, one that waits there.
const FEW: usize = 2;
/// Full calls go as long as there are fewer under way than this: the line may be long.
const MANY: usize = 16;

/// A queue is passed over by the other one at most so often.
const MOST_PASSED: usize = 2;

/// The operations of one caller, and where their answers go.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) kind: Kind,
    pub(crate) jobs: Vec<Job>,
    pub(crate) answer: oneshot::Sender<Result<Replies, CallError>>,
}

/// Sends what comes in until nobody is left who could send anything.
pub(crate) async fn gather(link: Arc<Link>, mut inbox: mpsc::UnboundedReceiver<Parcel>) {
    let flights = Arc::new(Flights::default());
    let mut gate = Gate::default();
    loop {
        while !gate.is_full() {
            let Ok(parcel) = inbox.try_recv() else { break };
            gate.add(parcel);
        }
        let under_way = flights.under_way.load(Ordering::Acquire);
        if !gate.is_empty() && (under_way < FEW || (gate.is_full() && under_way < MANY)) {
            flights.under_way.fetch_add(1, Ordering::AcqRel);
            let landing = Landing(flights.clone());
            let (kind, parcels) = gate.depart();
            send(&link, kind, parcels, landing);
            continue;
        }
        tokio::select! {
            () = flights.landed.notified(), if !gate.is_empty() => {}
            parcel = inbox.recv(), if !gate.is_full() => match parcel {
                Some(parcel) => gate.add(parcel),
                None => return,
            }
        }
    }
}

/// Calls under way.
#[derive(Debug, Default)]
struct Flights {
    under_way: AtomicUsize,
    landed: Notify,
}

/// A call is not under way any more when this is dropped.
#[derive(Debug)]
struct Landing(Arc<Flights>);

impl Drop for Landing {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
        self.0.landed.notify_one();
    }
}

/// Those who wait for the next call: calls of the two kinds do not mix.
#[derive(Debug, Default)]
struct Gate {
    plain: Queue,
    any: Queue,
}

impl Gate {
    fn add(&mut self, parcel: Parcel) {
        match parcel.kind {
            Kind::Plain => self.plain.add(parcel),
            Kind::Any => self.any.add(parcel),
        }
    }

    fn is_empty(&self) -> bool {
        self.plain.parcels.is_empty() && self.any.parcels.is_empty()
    }

    fn is_full(&self) -> bool {
        self.plain.is_full() || self.any.is_full()
    }

    /// Those who go with the next call, from the queue that is nearer to full; a few of the other
    /// kind do not wait for ever.
    fn depart(&mut self) -> (Kind, Vec<Parcel>) {
        let urgent = |queue: &Queue| !queue.parcels.is_empty() && queue.passed >= MOST_PASSED;
        let plain = match (urgent(&self.plain), urgent(&self.any)) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => self.plain.jobs >= self.any.jobs && !self.plain.parcels.is_empty(),
        };
        let (kind, first, other) = if plain {
            (Kind::Plain, &mut self.plain, &mut self.any)
        } else {
            (Kind::Any, &mut self.any, &mut self.plain)
        };
        other.passed += 1;
        (kind, first.depart())
    }
}

/// Waiting parcels in the order in which they came.
#[derive(Debug, Default)]
struct Queue {
    parcels: VecDeque<Parcel>,
    jobs: usize,
    keys: usize,
    /// How often the other queue went first.
    passed: usize,
}

impl Queue {
    fn add(&mut self, parcel: Parcel) {
        self.jobs += parcel.jobs.len();
        self.keys += keys(&parcel);
        self.parcels.push_back(parcel);
    }

    fn is_full(&self) -> bool {
        self.jobs >= MOST_JOBS || self.keys >= MOST_KEYS || self.parcels.len() >= MOST_JOBS
    }

    /// As many as fit, at least one. Whoever has left meanwhile does not go.
    fn depart(&mut self) -> Vec<Parcel> {
        self.passed = 0;
        let (mut parcels, mut jobs, mut all_keys) = (Vec::new(), 0, 0);
        while let Some(parcel) = self.parcels.pop_front() {
            let (own_jobs, own_keys) = (parcel.jobs.len(), keys(&parcel));
            let fits = jobs + own_jobs <= MOST_JOBS && all_keys + own_keys <= MOST_KEYS;
            if !fits && !parcels.is_empty() {
                self.parcels.push_front(parcel);
                break;
            }
            (self.jobs, self.keys) = (self.jobs - own_jobs, self.keys - own_keys);
            if !parcel.answer.is_closed() {
                (jobs, all_keys) = (jobs + own_jobs, all_keys + own_keys);
                parcels.push(parcel);
            }
        }
        parcels
    }
}

fn keys(parcel: &Parcel) -> usize {
    parcel.jobs.iter().map(Job::keys).sum()
}

/// Sends a call on its way, or says why there is none.
fn send(link: &Arc<Link>, kind: Kind, parcels: Vec<Parcel>, landing: Landing) {
    match link.line() {
        _ if parcels.is_empty() => {}
        Line::Up(connection, number) => {
            let line = (connection, number);
            tokio::spawn(fly(link.clone(), line, (kind, parcels), landing));
        }
        Line::Down(fault) => refuse(parcels, &fault.into()),
        Line::Trying => {
            let fault = Fault::NotConnected("the first try is under way".to_owned());
            refuse(parcels, &fault.into());
        }
    }
}

/// Carries one call out and hands the answers to their callers.
async fn fly(
    link: Arc<Link>,
    line: (MultiplexedConnection, u64),
    (kind, parcels): (Kind, Vec<Parcel>),
    landing: Landing,
) {
    let mut batch = Batch::new(kind);
    for parcel in &parcels {
        batch.add(&parcel.jobs);
    }
    let answer = link.call(line, &batch).await;
    // The next call may go while these answers are handed out.
    drop(landing);
    match answer.and_then(|value| replies(value).map_err(CallError::from)) {
        Ok(Replies { now_us, each }) => {
            let mut each = each.into_iter();
            for parcel in parcels {
                let own: Vec<Vec<u8>> = each.by_ref().take(parcel.jobs.len()).collect();
                let complete = own.len() == parcel.jobs.len();
                let own = Replies { now_us, each: own };
                let answer = if complete { Ok(own) } else { Err(Fault::Nonsense.into()) };
                // Nobody may be waiting any more.
                let _ = parcel.answer.send(answer);
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
    use crate::format::names::Names;
    use crate::job::{Code, Item};

    type Answered = oneshot::Receiver<Result<Replies, CallError>>;

    fn parcel(jobs: usize) -> (Parcel, Answered) {
        let item = Item { other: Some(Names::default().nodes()), ..Item::default() };
        let (answer, answered) = oneshot::channel();
        let jobs = (0..jobs).map(|_| Job::new(Code::Beat).with(item.clone())).collect();
        (Parcel { kind: Kind::Any, jobs, answer }, answered)
    }

    #[test]
    fn at_most_64_operations_go_together() {
        let (mut gate, mut waiting) = (Gate::default(), Vec::new());
        for _ in 0..101 {
            let (parcel, answered) = parcel(1);
            gate.add(parcel);
            waiting.push(answered);
        }
        assert!(gate.is_full());
        assert_eq!(gate.depart().1.len(), MOST_JOBS);
        assert!(!gate.is_full());
        assert_eq!(gate.depart().1.len(), 37);
        assert!(gate.is_empty());
        // One that fills a call alone goes alone, and the next one does not overtake it.
        for jobs in [60, 5, 1] {
            let (parcel, answered) = parcel(jobs);
            gate.add(parcel);
            waiting.push(answered);
        }
        assert_eq!([gate.depart().1.len(), gate.depart().1.len()], [1, 2]);
    }

    /// A caller may give up while calls are under way. What it asked for is then not done.
    #[test]
    fn who_has_left_is_not_sent() {
        let mut gate = Gate::default();
        let (first, gone) = parcel(1);
        let (second, _kept) = parcel(2);
        gate.add(first);
        gate.add(second);
        drop(gone);
        let (_, parcels) = gate.depart();
        assert_eq!(parcels.len(), 1);
        assert_eq!(parcels[0].jobs.len(), 2);
        assert_eq!((gate.any.jobs, gate.any.keys), (0, 0));
    }

    /// Calls of the two kinds do not mix, and neither kind starves the other.
    #[test]
    fn both_kinds_go() {
        let (mut gate, mut waiting) = (Gate::default(), Vec::new());
        let mut kinds = Vec::new();
        for _ in 0..6 {
            for kind in [Kind::Plain, Kind::Plain, Kind::Any] {
                let (mut parcel, answered) = parcel(1);
                parcel.kind = kind;
                gate.add(parcel);
                waiting.push(answered);
            }
            kinds.push(gate.depart().0);
        }
        assert_eq!(kinds[..4], [Kind::Plain, Kind::Plain, Kind::Any, Kind::Plain]);
        while !gate.is_empty() {
            assert!(!gate.depart().1.is_empty());
        }
    }
}
