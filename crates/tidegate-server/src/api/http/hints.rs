//! Retry hints for denied callers.
//!
//! With `api.jitter_percent`, the hints of takes and reserves are lengthened by a random part, so
//! that callers denied together do not retry together. Hints are never shortened. Peeks report the
//! state of a bucket and stay exact.

use tidegate::{Jitter, Retry};
use tidegate_http::field::RetryAfter;

/// How the denials of one request are jittered.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryHints<'a> {
    pub(super) jitter: &'a Jitter,
    pub(super) percent: u8,
}

impl RetryHints<'_> {
    /// Returns the hint for an exact wait; `None` if retrying is useless.
    pub(super) fn jittered(self, retry: Retry) -> Option<RetryAfter> {
        let exact = RetryAfter::of(retry)?;
        Some(self.jitter.lengthen(exact.wait(), self.percent).into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// G9: the hints differ by at least a tenth.
    #[test]
    fn hints_are_jittered_and_never_shortened() {
        let jitter = Jitter::new();
        let hints = RetryHints { jitter: &jitter, percent: 20 };
        let retry = Retry::After(Duration::from_secs(10));
        let hints_given: Vec<_> = (0..100).filter_map(|_| hints.jittered(retry)).collect();
        let hints_given: Vec<_> = hints_given.into_iter().map(RetryAfter::millis).collect();
        let (least, most) = (hints_given.iter().min().unwrap(), hints_given.iter().max().unwrap());
        assert!(*least >= 10_000 && *most <= 12_000 && most - least >= 1_000, "{least} {most}");
        let on_release = hints.jittered(Retry::OnRelease).unwrap();
        assert!(on_release.wait() >= RetryAfter::ON_RELEASE.wait());
        assert_eq!(hints.jittered(Retry::Never), None);
        let exact = RetryHints { percent: 0, ..hints };
        assert_eq!(exact.jittered(retry), RetryAfter::of(retry));
    }
}
