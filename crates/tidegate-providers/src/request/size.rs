//! Documented size limits of requests.
//!
//! A provider rejects a request that is too large only after it has been sent. Checking the known
//! limit first avoids that.

use crate::dialect::Dialect;
use crate::provider::Endpoint;

const MIB: usize = 1_024 * 1_024;

/// Anthropic's limits by endpoint. The documentation says MB; this is read as MiB, so that nothing
/// is rejected that the provider would accept.
const ANTHROPIC: &[(&str, usize)] = &[
    ("chat", 32 * MIB),
    ("messages", 32 * MIB),
    ("token_counting", 32 * MIB),
    ("batches", 256 * MIB),
    ("files", 500 * MIB),
];

/// Returns the maximum size of a request body in bytes; `None` if it is not known.
///
/// ```
/// use tidegate_providers::request::size_limit;
/// use tidegate_providers::{Dialect, Endpoint};
/// assert_eq!(size_limit(Dialect::Anthropic, &Endpoint::default()), Some(32 << 20));
/// assert_eq!(size_limit(Dialect::Anthropic, &Endpoint::new("batches")), Some(256 << 20));
/// assert_eq!(size_limit(Dialect::OpenAi, &Endpoint::default()), None);
/// ```
#[must_use]
pub fn size_limit(dialect: Dialect, endpoint: &Endpoint) -> Option<usize> {
    let table = match dialect {
        Dialect::Anthropic => ANTHROPIC,
        _ => return None,
    };
    table.iter().find(|(name, _)| *name == endpoint.as_str()).map(|(_, limit)| *limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anthropic_limits_the_size_of_requests_by_endpoint() {
        let mib = |name: &str| {
            let limit = size_limit(Dialect::Anthropic, &Endpoint::new(name));
            limit.map(|limit| limit / (1 << 20))
        };
        let names = ["messages", "token_counting", "batches", "files", "models"];
        assert_eq!(names.map(mib), [Some(32), Some(32), Some(256), Some(500), None]);
    }
}
