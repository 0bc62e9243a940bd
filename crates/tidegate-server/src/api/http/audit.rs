//! The audit of what is done to single keys by hand: a line in the log for each.
//!
//! Holds, resets and corrections without a receipt are somebody's decision. A correction with a
//! receipt is the second half of a charge, which services make with every call, and is logged at
//! the level `debug` only. Keys are not logged but the start of their hash, which whoever knows the
//! key can make as well: `printf %s KEY | sha256sum`.

use sha2::{Digest as _, Sha256};

use super::operation::Operation;
use super::request::{Item, Settle};
use crate::database::Note;

/// Logs what was done.
pub(super) fn log(operation: &Operation<'_>, note: &Note) {
    let Note { door, who } = note;
    let who = who.as_deref().unwrap_or("-");
    match operation {
        Operation::Hold(item) => {
            let Named { limit, key_hash, group_hash } = Named::of(item);
            let for_ms = u64::try_from(item.amount.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(
                target: "tidegate::audit", door, who, limit, key_hash, group_hash, for_ms,
                "a key was held"
            );
        }
        Operation::Reset(item) => {
            let Named { limit, key_hash, group_hash } = Named::of(item);
            tracing::info!(
                target: "tidegate::audit", door, who, limit, key_hash, group_hash,
                "a key was reset"
            );
        }
        Operation::Settle(Settle { list, receipt }) => {
            for item in &list.items {
                log_settlement(item, receipt.is_some(), door, who);
            }
        }
        Operation::Peek(asked) => {
            for item in &asked.list.items {
                let Named { limit, key_hash, group_hash } = Named::of(item);
                tracing::info!(
                    target: "tidegate::audit", door, who, limit, key_hash, group_hash,
                    "a key was looked at"
                );
            }
        }
        Operation::Take(_) | Operation::Reserve(_) => {}
    }
}

fn log_settlement(item: &Item<'_, i64>, of_receipt: bool, door: &str, who: &str) {
    let delta = item.amount;
    match of_receipt {
        // Hashing costs something, and hardly anybody asks for it.
        true if !tracing::enabled!(target: "tidegate::audit", tracing::Level::DEBUG) => {}
        true => {
            let Named { limit, key_hash, group_hash } = Named::of(item);
            tracing::debug!(
                target: "tidegate::audit", door, who, limit, key_hash, group_hash, delta,
                "a charge was settled"
            );
        }
        false => {
            let Named { limit, key_hash, group_hash } = Named::of(item);
            tracing::info!(
                target: "tidegate::audit", door, who, limit, key_hash, group_hash, delta,
                "a key was corrected"
            );
        }
    }
}

/// A bucket as a log may name it.
struct Named<'i> {
    limit: &'i str,
    key_hash: String,
    group_hash: String,
}

impl<'i> Named<'i> {
    fn of<N>(item: &'i Item<'_, N>) -> Self {
        let (key, group) = item.names();
        let group_hash = group.map_or_else(|| "-".to_owned(), hash);
        Self { limit: item.limit.name(), key_hash: hash(key), group_hash }
    }
}

/// The first eight digits of the SHA-256.
fn hash(text: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(text).into();
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `printf %s alice | sha256sum` has it.
    #[test]
    fn a_key_is_named_by_the_start_of_its_hash() {
        assert_eq!(hash("alice"), "2bd806c9");
    }
}
