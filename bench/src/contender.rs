//! What a limiter must offer to be measured, and the loops that ask it.

use std::hint::black_box;

use tokio::runtime::Runtime;
use tokio::task::coop::unconstrained;

/// A limiter under test. The loop is inside, so that calls in it are direct.
pub(crate) trait Contender: Sync {
    /// Decides about the keys in turn, `requests` times in all; returns how many were allowed.
    fn decide(&self, keys: &[String], requests: u64) -> u64;
}

/// Goes round the keys and counts what was allowed.
#[inline]
pub(crate) fn decide_each(
    keys: &[String],
    requests: u64,
    mut allow: impl FnMut(&String) -> bool,
) -> u64 {
    let mut allowed = 0;
    let mut left = requests;
    while left > 0 {
        for key in keys {
            if left == 0 {
                break;
            }
            allowed += u64::from(allow(black_box(key)));
            left -= 1;
        }
    }
    allowed
}

/// The same for those who decide about several keys at once, and say how many were allowed.
#[inline]
pub(crate) fn decide_in_batches<'k>(
    keys: &'k [String],
    requests: u64,
    size: usize,
    mut allow: impl FnMut(&'k [String]) -> u64,
) -> u64 {
    let mut allowed = 0;
    let mut left = requests;
    while left > 0 && !keys.is_empty() {
        for batch in keys.chunks(size) {
            // The last one of all may be shorter.
            let batch = usize::try_from(left).map_or(batch, |left| &batch[..left.min(batch.len())]);
            if batch.is_empty() {
                break;
            }
            allowed += allow(black_box(batch));
            left -= batch.len() as u64;
        }
    }
    allowed
}

/// Takes so many turns on a runtime, and counts those that went well.
///
/// The loop runs outside of tokio's cooperative budget: otherwise those that take part in it would
/// yield every 128 turns and the others would not.
#[inline]
pub(crate) fn repeat(runtime: &Runtime, requests: u64, turn: impl AsyncFn() -> bool) -> u64 {
    runtime.block_on(unconstrained(async {
        let mut granted = 0;
        for _ in 0..requests {
            granted += u64::from(turn().await);
        }
        granted
    }))
}
