//! Request ids for `x-tidegate-request-id`.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use tidegate_core::hash::mix;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Generates ids that are unique across gateways with high probability.
#[derive(Debug)]
pub(crate) struct RequestIds {
    seed: u64,
    next: AtomicU64,
}

/// The id of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RequestId(u64);

impl RequestIds {
    /// Returns `None` if the system's random number generator fails.
    pub(crate) fn new() -> Option<Self> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).ok()?;
        Some(Self { seed: u64::from_le_bytes(seed), next: AtomicU64::new(0) })
    }

    /// Returns the next id. Consecutive numbers are mixed so that ids do not reveal the load.
    pub(crate) fn next(&self) -> RequestId {
        let number = self.next.fetch_add(1, Ordering::Relaxed).wrapping_add(self.seed);
        RequestId(mix(number))
    }
}

impl RequestId {
    /// Returns the id as a number.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// Returns 16 hexadecimal digits, least significant first.
    fn digits(self) -> [u8; 16] {
        let mut rest = self.0;
        std::array::from_fn(|_| {
            let digit = DIGITS[(rest & 15) as usize];
            rest >>= 4;
            digit
        })
    }

    pub(crate) fn header(self) -> HeaderValue {
        let digits = self.digits();
        HeaderValue::from_bytes(&digits).unwrap_or_else(|_| HeaderValue::from_static("0"))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digits().iter().try_for_each(|digit| f.write_char(char::from(*digit)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique() {
        let ids = RequestIds::new().unwrap();
        let ids_seen: HashSet<_> = (0..10_000).map(|_| ids.next().header()).collect();
        assert_eq!(ids_seen.len(), 10_000);
        assert!(ids_seen.iter().all(|id| id.len() == 16));
        let id = ids.next();
        assert_eq!(id.header(), id.to_string());
    }
}
