//! Policy histories of a list that is divided among shards.
//!
//! A history can be longer than the rest of a message, so a batch has the history of a limit once:
//! with the first target of that limit. Each shard needs it, whichever targets are in its part.
//!
//! Lists are short, so what was found is searched one by one: maps would be a good part of the wasm
//! module.

use alloc::string::String;
use alloc::vec::Vec;

use crate::message::{LimitMessage, OperationMessage};

/// Returns the operation with the history of each limit at all of its targets.
pub(super) fn with_all_histories(operation: &OperationMessage) -> OperationMessage {
    let limits = operation.targets().map(|target| &target.limit);
    let histories: Vec<_> = limits.filter(|limit| !limit.past.is_empty()).collect();
    let mut complete = operation.clone();
    complete.for_each_limit(&mut |limit| {
        let same = |known: &&&LimitMessage| {
            (&known.name, known.generation) == (&limit.name, limit.generation)
        };
        if let Some(known) = histories.iter().find(same) {
            limit.past.clone_from(&known.past);
        }
    });
    complete
}

/// Leaves the history of each limit at its first target only.
pub(super) fn send_histories_once(operations: &mut [OperationMessage]) {
    let mut sent: Vec<(Option<String>, u32)> = Vec::new();
    for operation in operations {
        operation.for_each_limit(&mut |limit| {
            if limit.past.is_empty() {
                return;
            }
            let same = |(name, generation): &(Option<String>, u32)| {
                (name, *generation) == (&limit.name, limit.generation)
            };
            if sent.iter().any(same) {
                limit.past.clear();
            } else {
                sent.push((limit.name.clone(), limit.generation));
            }
        });
    }
}
