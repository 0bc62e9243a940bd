//! Takes the usage out of a stream that was asked for it on the gateway's own account, so that the
//! caller gets what it would have got without.
//!
//! OpenAI sends one more event with the counts, and a member `usage` that is null in every other
//! event. Both are removed; every other byte stays. An event is held until it is complete.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::request::stream_options::{Members, place};

/// No event is longer than this: 1 MiB. What is longer passes as it is.
const MAX_HELD: usize = 1_024 * 1_024;
const USAGE: &str = "usage";

/// Takes the usage out of one stream.
#[derive(Debug, Default)]
pub(crate) struct UsageStripper {
    held: Vec<u8>,
    is_off: bool,
}

impl UsageStripper {
    /// What the caller gets of a piece.
    pub(crate) fn strip(&mut self, data: &Bytes) -> Bytes {
        if self.is_off {
            return data.clone();
        }
        self.held.extend_from_slice(data);
        let mut passed = Vec::with_capacity(self.held.len());
        let mut rest = self.held.as_slice();
        while let Some(end) = event_end(rest) {
            let (event, after) = rest.split_at(end);
            push_stripped(event, &mut passed);
            rest = after;
        }
        self.held = rest.to_vec();
        if self.held.len() > MAX_HELD {
            self.is_off = true;
            passed.append(&mut self.held);
        }
        passed.into()
    }

    /// What is left when the stream has ended.
    pub(crate) fn finish(&mut self) -> Bytes {
        let mut passed = Vec::new();
        push_stripped(&std::mem::take(&mut self.held), &mut passed);
        passed.into()
    }
}

/// Where the first event ends: after the empty line.
fn event_end(bytes: &[u8]) -> Option<usize> {
    (1..bytes.len()).find_map(|at| {
        let before = bytes.get(..=at)?;
        (before.ends_with(b"\n\n") || before.ends_with(b"\n\r\n") || before.ends_with(b"\r\r"))
            .then_some(at + 1)
    })
}

fn push_stripped(event: &[u8], passed: &mut Vec<u8>) {
    match stripped(event) {
        Stripped::Unchanged => passed.extend_from_slice(event),
        Stripped::Without(begin, end) => {
            passed.extend_from_slice(event.get(..begin).unwrap_or_default());
            passed.extend_from_slice(event.get(end..).unwrap_or_default());
        }
        Stripped::Nothing => {}
    }
}

/// What is left of an event.
#[derive(Debug, PartialEq, Eq)]
enum Stripped {
    Unchanged,
    /// All but these bytes.
    Without(usize, usize),
    Nothing,
}

fn stripped(event: &[u8]) -> Stripped {
    let Some(data) = event.trim_ascii().strip_prefix(b"data:") else { return Stripped::Unchanged };
    let Ok(members) = serde_json::from_slice::<Members<'_>>(data) else {
        return Stripped::Unchanged;
    };
    let text = |value: Option<&&RawValue>| value.map(|value| value.get().trim().to_owned());
    let choices = text(members.get("choices")).unwrap_or_default();
    let has_no_choice =
        choices.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with(']'));
    match (members.get(USAGE), text(members.get(USAGE)).as_deref()) {
        (Some(value), Some("null")) => match member(event, value) {
            Some((begin, end)) => Stripped::Without(begin, end),
            None => Stripped::Unchanged,
        },
        (Some(_), Some(usage)) if usage.starts_with('{') && has_no_choice => Stripped::Nothing,
        _ => Stripped::Unchanged,
    }
}

/// Where a member stands in an event, with the comma that goes with it.
fn member(event: &[u8], value: &RawValue) -> Option<(usize, usize)> {
    let (begin, end) = place(event, value)?;
    let before = event.get(..begin)?.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    let before = before.strip_suffix(b"\"usage\"")?.trim_ascii_end();
    if let Some(before) = before.strip_suffix(b",") {
        return Some((before.len(), end));
    }
    let after = event.get(end..)?;
    let comma = after.trim_ascii_start().strip_prefix(b",").map(|rest| event.len() - rest.len());
    Some((before.len(), comma.unwrap_or(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: &str = concat!(
        "data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n",
        ": comment\n\n",
        "data: {\"usage\": null, \"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\r\n\r\n",
        "data: {\"id\":\"1\",\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n",
        "data: [DONE]\n\n",
    );
    const WITHOUT: &str = concat!(
        "data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        ": comment\n\n",
        "data: { \"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\r\n\r\n",
        "data: [DONE]\n\n",
    );

    fn strip(text: &str, piece: usize) -> String {
        let mut stripper = UsageStripper::default();
        let mut passed = Vec::new();
        for piece in text.as_bytes().chunks(piece) {
            passed.extend_from_slice(&stripper.strip(&Bytes::copy_from_slice(piece)));
        }
        passed.extend_from_slice(&stripper.finish());
        String::from_utf8(passed).unwrap()
    }

    #[test]
    fn a_caller_sees_what_it_would_have_seen() {
        for piece in [1, 10, 1_000] {
            assert_eq!(strip(ASKED, piece), WITHOUT, "in pieces of {piece}");
            assert_eq!(strip(WITHOUT, piece), WITHOUT);
        }
    }

    #[test]
    fn counts_that_come_with_words_stay() {
        let told = "data: {\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":1}}\n\n";
        assert_eq!(strip(told, 7), told);
        let cut = "data: {\"choices\":[";
        assert_eq!(strip(cut, 7), cut);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut stripper = UsageStripper::default();
        let long = Bytes::from(vec![b'x'; MAX_HELD + 1]);
        assert_eq!(stripper.strip(&long), long);
        assert!(stripper.finish().is_empty());
    }
}
