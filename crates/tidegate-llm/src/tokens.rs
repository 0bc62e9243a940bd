//! Counting tokens.

use crate::chat::Chat;

/// What a turn costs beside its text, as providers count.
const PER_TURN: u64 = 4;

/// Input tokens of a chat.
pub(crate) fn count_chat(chat: &Chat) -> u64 {
    let turns = u64::try_from(chat.messages.len()).unwrap_or(u64::MAX).saturating_mul(PER_TURN);
    chat.texts().map(count).fold(turns, u64::saturating_add)
}

/// Tokens of a text.
pub(crate) fn count(text: &str) -> u64 {
    u64::try_from(text.chars().count().div_ceil(4)).unwrap_or(u64::MAX)
}
