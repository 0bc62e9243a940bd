//! Retry hints for denied callers.
//!
//! With `api.jitter_percent`, the hints of takes and reserves are lengthened by a random part, so
//! that callers denied together do not retry together. Hints are never shortened. Peeks report the
//! state of a bucket and stay exact.

use tidegate::{Jitter, Retry};
use tidegate_http::field::RetryAfter;

/// How the denials of one request are jittered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hints<'a> {
    pub(super) jitter: &'a Jitter,
    pub(super) percent: u8,
}

impl Hints<'_> {
    /// Returns the hint for an exact wait; `None` if retrying is useless.
    pub(super) fn spread(self, retry: Retry) -> Option<RetryAfter> {
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
    fn hints_are_spread_and_never_shortened() {
        let jitter = Jitter::new();
        let hints = Hints { jitter: &jitter, percent: 20 };
        let retry = Retry::After(Duration::from_secs(10));
        let told: Vec<_> = (0..100).filter_map(|_| hints.spread(retry)).collect();
        let told: Vec<_> = told.into_iter().map(RetryAfter::millis).collect();
        let (least, most) = (told.iter().min().unwrap(), told.iter().max().unwrap());
        assert!(*least >= 10_000 && *most <= 12_000 && most - least >= 1_000, "{least} {most}");
        let on_release = hints.spread(Retry::OnRelease).unwrap();
        assert!(on_release.wait() >= RetryAfter::ON_RELEASE.wait());
        assert_eq!(hints.spread(Retry::Never), None);
        let exact = Hints { percent: 0, ..hints };
        assert_eq!(exact.spread(retry), RetryAfter::of(retry));
    }
}
