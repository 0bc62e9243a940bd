//! How large a request may be, where a provider says so.
//!
//! A request that is too large is refused at the edge of the provider, after all of it was sent.
//! Whoever knows the limit need not send it.

use crate::dialect::Dialect;
use crate::provider::Endpoint;

const MIB: usize = 1_024 * 1_024;

/// What Anthropic accepts, by endpoint. It says MB, which is read as the larger of its meanings, so
/// that nothing is refused that the provider would take.
const ANTHROPIC: &[(&str, usize)] = &[
    ("chat", 32 * MIB),
    ("messages", 32 * MIB),
    ("token_counting", 32 * MIB),
    ("batches", 256 * MIB),
    ("files", 500 * MIB),
];

/// The most bytes of a request's body; `None` where nothing is known.
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
