//! The interface of a measured limiter, and the loops that drive it.

use std::hint::black_box;

use tokio::runtime::Runtime;
use tokio::task::coop::unconstrained;

/// A measured limiter. The loop is inside, so that calls in it are static.
pub(crate) trait Contender: Sync {
    /// Makes `requests` decisions on the keys in order, starting over at the end. Returns the
    /// number of allowed ones.
    fn decide(&self, keys: &[String], requests: u64) -> u64;
}

/// Decides on the keys in order and counts the allowed decisions.
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

/// Decides on the keys in batches and counts the allowed decisions.
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
            // The last batch may be shorter.
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

/// Runs `turn` this many times on a runtime and counts the successful ones.
///
/// The loop runs outside tokio's cooperative budget: otherwise contenders that take part in it
/// would yield every 128 iterations and the others would not.
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
