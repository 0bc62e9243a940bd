//! The tokenizer, unpacked once per process by a thread of its own.
//!
//! A program that counts nothing pays for nothing. Unpacking takes tens of milliseconds, which is
//! too long for a worker of an asynchronous runtime.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::merge::Merger;
use super::split::Splitter;
use super::vocabulary::Vocabulary;

static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
/// Whether a thread unpacks the vocabulary or has done so.
static IS_STARTED: AtomicBool = AtomicBool::new(false);

/// Counts tokens as OpenAI's encoding `o200k_base` does.
#[derive(Debug)]
pub(super) struct Tokenizer {
    vocabulary: Vocabulary,
    splitter: Splitter,
}

impl Tokenizer {
    fn new() -> Self {
        Self { vocabulary: Vocabulary::unpack(), splitter: Splitter::new() }
    }

    /// Counts the tokens of a text in `O(n log n)`.
    pub(super) fn count(&self, text: &str) -> u64 {
        let mut merger = Merger::new(&self.vocabulary);
        let pieces = self.splitter.pieces(text).map(|piece| merger.count(piece.as_bytes()));
        u64::try_from(pieces.sum::<usize>()).unwrap_or(u64::MAX)
    }

    #[cfg(test)]
    pub(super) const fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }
}

/// Returns the tokenizer if it is ready. Otherwise starts a thread that builds it, if none runs.
pub(super) fn get_or_start() -> Option<&'static Tokenizer> {
    let ready = TOKENIZER.get();
    if ready.is_none() && !IS_STARTED.swap(true, Ordering::Relaxed) {
        let thread = thread::Builder::new().name("tokenizer".to_owned());
        if thread.spawn(get_or_wait).is_err() {
            // Out of threads: estimates must do, and a later call tries again.
            IS_STARTED.store(false, Ordering::Relaxed);
        }
    }
    ready
}

/// Returns whether the tokenizer is ready.
pub(super) fn is_ready() -> bool {
    TOKENIZER.get().is_some()
}

/// Returns the tokenizer, built by this thread or by another one.
pub(super) fn get_or_wait() -> &'static Tokenizer {
    TOKENIZER.get_or_init(Tokenizer::new)
}
