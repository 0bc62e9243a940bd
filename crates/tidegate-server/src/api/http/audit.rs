//! Audit log of manual operations on keys and on admission.
//!
//! Holds, resets, settlements without a receipt and reported numbers of pending requests are manual
//! operations. A settlement with a receipt is the second half of a charge, which services make with
//! every call, and is logged at level `debug` only. Keys are logged as the first digits of their
//! hash, which can be computed from the key: `printf %s KEY | sha256sum`. The author is given as
//! the first digits of the token's digest, or as the peer address if there is no token.

mod throttle;

use std::net::IpAddr;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::operation::Operation;
use super::request::{Item, Settle};
use crate::database::ChangeOrigin;
pub(super) use throttle::AuditThrottle;

/// Outcome of a manual operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionOutcome {
    Done,
    /// The store failed.
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
    /// Limits the lines of a peer without a token.
    throttle: Option<(&'a AuditThrottle, IpAddr)>,
}

impl<'a> Auditor<'a> {
    /// Creates an auditor for the author named in a note.
    pub(super) fn of(note: &'a ChangeOrigin) -> Self {
        let ChangeOrigin { door, who } = note;
        Self { door, who: who.as_deref().unwrap_or("-"), throttle: None }
    }

    /// Limits the lines of a peer to what the throttle admits.
    pub(super) fn throttled(mut self, throttle: &'a AuditThrottle, peer: IpAddr) -> Self {
        self.throttle = Some((throttle, peer));
        self
    }

    /// Logs an operation, if it is one that is audited.
    pub(super) fn log(&self, operation: &Operation<'_>, outcome: ActionOutcome) {
        let (door, who, outcome) = (self.door, self.who, outcome.as_str());
        match operation {
            Operation::Hold(item) if self.may_write() => {
                let BucketName { limit, key_hash, group_hash } = BucketName::of(item);
                let for_ms = millis(item.amount);
                tracing::info!(
                    target: "tidegate::audit", door, who, limit, key_hash, group_hash, for_ms,
                    outcome, "key held"
                );
            }
            Operation::Reset(item) if self.may_write() => {
                let BucketName { limit, key_hash, group_hash } = BucketName::of(item);
                tracing::info!(
                    target: "tidegate::audit", door, who, limit, key_hash, group_hash, outcome,
                    "key reset"
                );
            }
            Operation::Settle(Settle { list, receipt: None }) => {
                for item in list.items.iter().filter(|_| self.may_write()) {
                    let BucketName { limit, key_hash, group_hash } = BucketName::of(item);
                    tracing::info!(
                        target: "tidegate::audit", door, who, limit, key_hash, group_hash,
                        delta = item.amount, outcome, "key corrected"
                    );
                }
            }
            Operation::Settle(Settle { list, receipt: Some(_) }) if logs_settlements() => {
                for item in &list.items {
                    let BucketName { limit, key_hash, group_hash } = BucketName::of(item);
                    tracing::debug!(
                        target: "tidegate::audit", door, who, limit, key_hash, group_hash,
                        delta = item.amount, outcome, "charge settled"
                    );
                }
            }
            Operation::Peek(request) => {
                for item in &request.list.items {
                    let BucketName { limit, key_hash, group_hash } = BucketName::of(item);
                    tracing::info!(
                        target: "tidegate::audit", door, who, limit, key_hash, group_hash,
                        outcome, "key peeked"
                    );
                }
            }
            _ => {}
        }
    }

    /// Logs that the number of pending requests was set.
    pub(super) fn log_pending(&self, value: u32, ttl: Duration) {
        if self.may_write() {
            let (door, who, for_ms) = (self.door, self.who, millis(ttl));
            let outcome = ActionOutcome::Done.as_str();
            tracing::info!(
                target: "tidegate::audit", door, who, value, for_ms, outcome,
                "pending requests set"
            );
        }
    }

    fn may_write(&self) -> bool {
        self.throttle.is_none_or(|(throttle, peer)| throttle.admit(peer))
    }
}

/// Returns whether settlements with a receipt are logged. This avoids hashing keys when the level
/// is off, as it usually is.
pub(super) fn logs_settlements() -> bool {
    tracing::enabled!(target: "tidegate::audit", tracing::Level::DEBUG)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The identity of a bucket, as it may be logged.
struct BucketName<'i> {
    limit: &'i str,
    key_hash: String,
    group_hash: String,
}

impl<'i> BucketName<'i> {
    fn of<N>(item: &'i Item<'_, N>) -> Self {
        let (key, group) = item.names();
        let group_hash = group.map_or_else(|| "-".to_owned(), hash);
        Self { limit: item.limit.name(), key_hash: hash(key), group_hash }
    }
}

/// Returns the first eight hexadecimal digits of the SHA-256.
fn hash(text: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(text).into();
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of `printf %s alice | sha256sum`.
    #[test]
    fn keys_are_logged_by_the_first_digits_of_their_hash() {
        assert_eq!(hash("alice"), "2bd806c9");
    }
}
