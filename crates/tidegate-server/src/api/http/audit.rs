//! The audit of what operators do to keys and to admission: a line in the log for each.
//!
//! Holds, resets and corrections without a receipt are somebody's decision, and so is a number of
//! pending requests. A correction with a receipt is the second half of a charge, which services make
//! with every call, and is logged at the level `debug` only. Keys are not logged but the start of
//! their hash, which whoever knows the key can make as well: `printf %s KEY | sha256sum`. Who did it
//! is the start of the hash of a token, or the address of the peer where there is none.

mod throttle;

use std::net::IpAddr;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::operation::Operation;
use super::request::{Item, Settle};
use crate::database::Note;
pub(super) use throttle::AuditThrottle;

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionOutcome {
    Done,
    /// The store could not do it.
    Failed,
}

impl ActionOutcome {
    pub(super) const fn of<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Done } else { Self::Failed }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// Writes audit lines for one author.
pub(super) struct Auditor<'a> {
    door: &'static str,
    who: &'a str,
    /// Bounds the lines of a peer that brought no token.
    throttle: Option<(&'a AuditThrottle, IpAddr)>,
}

impl<'a> Auditor<'a> {
    /// Lines for whoever a note names.
    pub(super) fn of(note: &'a Note) -> Self {
        let Note { door, who } = note;
        Self { door, who: who.as_deref().unwrap_or("-"), throttle: None }
    }

    /// Writes no more lines for a peer than the throttle admits.
    pub(super) fn throttled(mut self, throttle: &'a AuditThrottle, peer: IpAddr) -> Self {
        self.throttle = Some((throttle, peer));
        self
    }

    /// Logs an operation.
    pub(super) fn log(&self, operation: &Operation<'_>, outcome: ActionOutcome) {
        let (door, who, outcome) = (self.door, self.who, outcome.as_str());
        match operation {
            Operation::Hold(item) if self.may_write() => {
                let Named { limit, key_hash, group_hash } = Named::of(item);
                let for_ms = millis(item.amount);
                tracing::info!(
                    target: "tidegate::audit", door, who, limit, key_hash, group_hash, for_ms,
                    outcome, "a key was held"
                );
            }
            Operation::Reset(item) if self.may_write() => {
                let Named { limit, key_hash, group_hash } = Named::of(item);
                tracing::info!(
                    target: "tidegate::audit", door, who, limit, key_hash, group_hash, outcome,
                    "a key was reset"
                );
            }
            Operation::Settle(Settle { list, receipt: None }) => {
                for item in list.items.iter().filter(|_| self.may_write()) {
                    let Named { limit, key_hash, group_hash } = Named::of(item);
                    tracing::info!(
                        target: "tidegate::audit", door, who, limit, key_hash, group_hash,
                        delta = item.amount, outcome, "a key was corrected"
                    );
                }
            }
            Operation::Settle(Settle { list, receipt: Some(_) }) if logs_settlements() => {
                for item in &list.items {
                    let Named { limit, key_hash, group_hash } = Named::of(item);
                    tracing::debug!(
                        target: "tidegate::audit", door, who, limit, key_hash, group_hash,
                        delta = item.amount, outcome, "a charge was settled"
                    );
                }
            }
            Operation::Peek(asked) => {
                for item in &asked.list.items {
                    let Named { limit, key_hash, group_hash } = Named::of(item);
                    tracing::info!(
                        target: "tidegate::audit", door, who, limit, key_hash, group_hash,
                        outcome, "a key was looked at"
                    );
                }
            }
            _ => {}
        }
    }

    /// Logs that the number of pending requests was set.
    pub(super) fn log_pending(&self, value: u32, good_for: Duration) {
        if self.may_write() {
            let (door, who, for_ms) = (self.door, self.who, millis(good_for));
            let outcome = ActionOutcome::Done.as_str();
            tracing::info!(
                target: "tidegate::audit", door, who, value, for_ms, outcome,
                "the number of pending requests was set"
            );
        }
    }

    fn may_write(&self) -> bool {
        self.throttle.is_none_or(|(throttle, peer)| throttle.admit(peer))
    }
}

/// Whether settlements with a receipt are logged. Hashing costs something, and hardly anybody asks for
/// it.
pub(super) fn logs_settlements() -> bool {
    tracing::enabled!(target: "tidegate::audit", tracing::Level::DEBUG)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
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
