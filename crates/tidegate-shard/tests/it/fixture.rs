//! Shards on maps, as a store.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::{
    Now, Operation, Store, StoreError, StoreResponses, Submission, Time, WallTime, decide,
};
use tidegate_shard::coordinate::{self, CoordinatorStep};
use tidegate_shard::message::{Batch, FORMAT, OperationMessage, PolicySync, Replies};
use tidegate_shard::{Shard, Storage, Table};
use tidegate_testkit::subject::{BoxFuture, Resolution, Subject};

/// Storage in memory.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    pub(crate) buckets: BTreeMap<String, (Vec<u8>, Option<u64>)>,
    pub(crate) limits: BTreeMap<String, (Vec<u8>, Option<u64>)>,
    pub(crate) writes: usize,
}

impl Maps {
    fn table(&mut self, table: Table) -> &mut BTreeMap<String, (Vec<u8>, Option<u64>)> {
        match table {
            Table::Buckets => &mut self.buckets,
            Table::Limits => &mut self.limits,
        }
    }
}

impl Storage for Maps {
    fn read(&mut self, table: Table, key: &str) -> Option<Vec<u8>> {
        self.table(table).get(key).map(|(value, _)| value.clone())
    }

    fn write(&mut self, table: Table, key: &str, value: &[u8], full_at: Option<u64>) {
        self.writes += 1;
        self.table(table).insert(key.to_owned(), (value.to_vec(), full_at));
    }

    fn remove(&mut self, table: Table, key: &str) {
        self.writes += 1;
        self.table(table).remove(key);
    }
}

/// Shards in this process, with a clock that a test sets.
#[derive(Debug)]
pub(crate) struct InProcess {
    shards: Vec<Mutex<InstanceMaker>>,
    now: AtomicU64,
}

/// A shard whose instance is made anew for every batch, so that nothing relies on its memory.
#[derive(Debug, Default)]
struct InstanceMaker {
    storage: Maps,
    batches: u64,
}

impl InProcess {
    pub(crate) fn new(shards: u32) -> Self {
        let shards = (0..shards).map(|_| Mutex::default()).collect();
        Self { shards, now: AtomicU64::new(0) }
    }

    /// Executes a batch on a shard. Messages pass through their JSON form.
    fn run(&self, shard: u32, batch: &Batch) -> Replies {
        let body = serde_json::to_vec(batch).unwrap();
        let batch = Batch::parse(&body).unwrap();
        let mut maker = self.shards[shard as usize].lock().unwrap();
        maker.batches += 1;
        let ns = self.now.load(Ordering::SeqCst);
        let now = Now { time: Time::from_nanos(ns), wall: WallTime::from_nanos(ns) };
        let mut instance = Shard::new(std::mem::take(&mut maker.storage), maker.batches << 32);
        let replies = instance.run(&batch, now);
        maker.storage = std::mem::take(instance.storage());
        Replies::parse(&serde_json::to_vec(&replies).unwrap()).unwrap()
    }

    fn execute(
        &self,
        operation: &Operation<'_>,
    ) -> Result<tidegate_core::StoreResponse, StoreError> {
        let message = OperationMessage::new(operation, |_| PolicySync::default()).unwrap();
        decide::check_list(message.targets().map(|target| target.key()).collect::<Vec<_>>())?;
        let batch = Batch { format: FORMAT, node: Some(1), operations: vec![message] };
        let shards = u32::try_from(self.shards.len()).unwrap();
        let mut rounds = Vec::new();
        loop {
            match coordinate::advance(&batch, shards, &rounds) {
                CoordinatorStep::Done(replies) => return replies[0].to_response(),
                CoordinatorStep::Send(calls) => {
                    let round = calls.iter().map(|call| Ok(self.run(call.shard, &call.batch)));
                    rounds.push(round.collect());
                }
            }
        }
    }
}

impl Store for InProcess {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        responses: &'a mut StoreResponses,
    ) -> Submission<'a> {
        responses.extend(operations.iter().map(|operation| self.execute(operation)));
        Submission::Ready
    }
}

impl Subject for InProcess {
    fn store(&self) -> &dyn Store {
        self
    }

    fn resolution(&self) -> Resolution {
        Resolution::Ns
    }

    fn set_time(&self, nanos: u64) -> BoxFuture<'_, ()> {
        self.now.store(nanos, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}
