//! The network input of the Worker: requests to a shard, operations across shards, and what shards
//! reply.

use std::collections::BTreeMap;
use std::mem;

use serde_json::{Value, json};
use tidegate_core::{Now, Time, WallTime};
use tidegate_shard::api::{self, Response};
use tidegate_shard::message::{Batch, FORMAT, Replies};
use tidegate_shard::{Shard, Storage, Table};

use crate::input;

/// The time of all requests, in nanoseconds.
const NOW: u64 = 1_800_000_000_000_000_000;
/// Number of shards of the operations.
const SHARDS: u32 = 4;
/// A take has a round per shard, one before and one after; a reservation has three times as many.
const MAX_ROUNDS: usize = 3 * (SHARDS as usize + 2);

/// Storage in memory.
#[derive(Default)]
struct Maps {
    values: BTreeMap<(bool, String), Vec<u8>>,
    writes: usize,
}

impl Maps {
    fn key(table: Table, key: &str) -> (bool, String) {
        (table == Table::Limits, key.to_owned())
    }
}

impl Storage for Maps {
    fn read(&mut self, table: Table, key: &str) -> Option<Vec<u8>> {
        self.values.get(&Self::key(table, key)).cloned()
    }

    fn write(&mut self, table: Table, key: &str, value: &[u8], _full_at: Option<u64>) {
        self.writes += 1;
        self.values.insert(Self::key(table, key), value.to_vec());
    }

    fn remove(&mut self, table: Table, key: &str) {
        self.writes += 1;
        self.values.remove(&Self::key(table, key));
    }
}

fn post(shard: &mut Shard<Maps>, path: &str, body: &[u8]) -> Response {
    let now = Now { time: Time::from_nanos(NOW), wall: WallTime::from_nanos(NOW) };
    api::respond(shard, path, body, now)
}

/// A body below a line with its path, for one shard and for all. No body is a failure of the shard,
/// a refused one stores nothing, and what is stored can be read again.
pub(super) fn request(bytes: &[u8]) {
    let Some((path, body)) = input::text_line(bytes) else { return };
    let mut shard = Shard::new(Maps::default(), 7);
    let response = post(&mut shard, path, body);
    check(&response);
    assert!(response.status == 200 || shard.storage().writes == 0, "{}", response.body);
    let mut restarted = Shard::new(mem::take(shard.storage()), 8);
    check(&post(&mut restarted, path, body));
    if let Ok(body) = std::str::from_utf8(body) {
        operation(path, body);
    }
}

/// Executes an operation on all shards that have a key of it.
fn operation(path: &str, body: &str) {
    let mut shards: Vec<_> = (0..SHARDS).map(|_| Shard::new(Maps::default(), 7)).collect();
    let mut replies: Vec<Vec<Value>> = Vec::new();
    loop {
        let progress = json!({ "shards": SHARDS, "path": path, "body": body, "replies": replies });
        let next = step(progress.to_string().as_bytes());
        let Some(calls) = next["calls"].as_array() else {
            let body = next["body"].as_str().unwrap().to_owned();
            let status = u16::try_from(next["status"].as_u64().unwrap()).unwrap();
            return check(&Response { status, body });
        };
        let reply = |call: &Value| {
            let shard = &mut shards[usize::try_from(call["shard"].as_u64().unwrap()).unwrap()];
            let body = call["body"].as_str().unwrap().as_bytes();
            let response = post(shard, "/operations", body);
            assert_eq!(response.status, 200, "a shard refuses its part: {}", response.body);
            json!({ "status": response.status, "body": response.body })
        };
        replies.push(calls.iter().map(reply).collect());
        assert!(replies.len() <= MAX_ROUNDS, "the coordinator does not end");
    }
}

fn check(response: &Response) {
    match response.status {
        200 => drop(serde_json::from_str::<Value>(&response.body).unwrap()),
        400 | 404 | 503 => assert!(!response.body.is_empty(), "an error without a text"),
        status => panic!("status {status}: {}", response.body),
    }
}

/// A request with replies of shards: the next step is calls with valid batches, or a response.
pub(super) fn coordinator(bytes: &[u8]) {
    let next = step(bytes);
    for call in next["calls"].as_array().into_iter().flatten() {
        assert!(call["shard"].is_u64(), "{next}");
        Batch::parse(call["body"].as_str().unwrap().as_bytes()).unwrap();
    }
    let is_done = next["status"].is_u64() && next["body"].is_string();
    assert!(is_done || next["calls"].as_array().is_some_and(|calls| !calls.is_empty()), "{next}");
}

fn step(progress: &[u8]) -> Value {
    serde_json::from_str(&api::coordinate(progress)).unwrap()
}

/// Messages: those that can be read are the same after they were written and read again.
pub(super) fn messages(bytes: &[u8]) {
    if let Ok(replies) = Replies::parse(bytes) {
        assert_eq!(replies.format, FORMAT);
        let written = serde_json::to_vec(&replies).unwrap();
        assert_eq!(Replies::parse(&written).as_ref(), Ok(&replies));
        for reply in &replies.replies {
            if let Err(error) = reply.to_response() {
                assert!(!error.to_string().is_empty(), "an error without a text");
            }
        }
    }
    if let Ok(batch) = Batch::parse(bytes) {
        let written = serde_json::to_vec(&batch).unwrap();
        assert_eq!(Batch::parse(&written), Ok(batch));
    }
}
