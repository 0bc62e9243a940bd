//! Removes usage that the gateway requested from a stream, so that the caller gets the stream it
//! asked for.
//!
//! OpenAI sends an additional event with the usage, and a member `usage` that is null in all other
//! events. Both are removed; all other bytes are unchanged. An event is held until it is complete.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::request::stream_options::{Members, span_of};

/// Maximum event size: 1 MiB. After a longer event the stream is forwarded unchanged.
const MAX_HELD: usize = 1_024 * 1_024;
const USAGE: &str = "usage";

/// Removes usage from one stream.
#[derive(Debug, Default)]
pub(crate) struct UsageStripper {
    held: Vec<u8>,
    is_off: bool,
}

impl UsageStripper {
    /// Returns the bytes to forward for a chunk.
    pub(crate) fn strip(&mut self, data: &Bytes) -> Bytes {
        if self.is_off {
            return data.clone();
        }
        self.held.extend_from_slice(data);
        let mut output = Vec::with_capacity(self.held.len());
        let mut rest = self.held.as_slice();
        while let Some(end) = event_end(rest) {
            let (event, after) = rest.split_at(end);
            push_edited(event, &mut output);
            rest = after;
        }
        self.held = rest.to_vec();
        if self.held.len() > MAX_HELD {
            self.is_off = true;
            output.append(&mut self.held);
        }
        output.into()
    }

    /// Returns the remaining bytes at the end of the stream.
    pub(crate) fn finish(&mut self) -> Bytes {
        let mut output = Vec::new();
        push_edited(&std::mem::take(&mut self.held), &mut output);
        output.into()
    }
}

/// Returns the end of the first event, after its blank line.
fn event_end(bytes: &[u8]) -> Option<usize> {
    (1..bytes.len()).find_map(|at| {
        let before = bytes.get(..=at)?;
        (before.ends_with(b"\n\n") || before.ends_with(b"\n\r\n") || before.ends_with(b"\r\r"))
            .then_some(at + 1)
    })
}

fn push_edited(event: &[u8], output: &mut Vec<u8>) {
    match event_edit(event) {
        EventEdit::Keep => output.extend_from_slice(event),
        EventEdit::Remove(start, end) => {
            output.extend_from_slice(event.get(..start).unwrap_or_default());
            output.extend_from_slice(event.get(end..).unwrap_or_default());
        }
        EventEdit::Drop => {}
    }
}

/// What to do with an event.
#[derive(Debug, PartialEq, Eq)]
enum EventEdit {
    Keep,
    /// Remove the bytes between these offsets.
    Remove(usize, usize),
    Drop,
}

fn event_edit(event: &[u8]) -> EventEdit {
    let Some(data) = event.trim_ascii().strip_prefix(b"data:") else { return EventEdit::Keep };
    let Ok(members) = serde_json::from_slice::<Members<'_>>(data) else {
        return EventEdit::Keep;
    };
    let text = |value: Option<&&RawValue>| value.map(|value| value.get().trim().to_owned());
    let choices = text(members.get("choices")).unwrap_or_default();
    let has_no_choice =
        choices.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with(']'));
    match (members.get(USAGE), text(members.get(USAGE)).as_deref()) {
        (Some(value), Some("null")) => match usage_member_span(event, value) {
            Some((start, end)) => EventEdit::Remove(start, end),
            None => EventEdit::Keep,
        },
        (Some(_), Some(usage)) if usage.starts_with('{') && has_no_choice => EventEdit::Drop,
        _ => EventEdit::Keep,
    }
}

/// Returns the span of the usage member, including one adjacent comma.
fn usage_member_span(event: &[u8], value: &RawValue) -> Option<(usize, usize)> {
    let (start, end) = span_of(event, value)?;
    let before = event.get(..start)?.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
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

    const WITH_USAGE: &str = concat!(
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

    fn strip(text: &str, chunk: usize) -> String {
        let mut stripper = UsageStripper::default();
        let mut output = Vec::new();
        for chunk in text.as_bytes().chunks(chunk) {
            output.extend_from_slice(&stripper.strip(&Bytes::copy_from_slice(chunk)));
        }
        output.extend_from_slice(&stripper.finish());
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn injected_usage_is_removed() {
        for chunk in [1, 10, 1_000] {
            assert_eq!(strip(WITH_USAGE, chunk), WITHOUT, "in pieces of {chunk}");
            assert_eq!(strip(WITHOUT, chunk), WITHOUT);
        }
    }

    #[test]
    fn usage_next_to_content_is_kept() {
        let event = "data: {\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":1}}\n\n";
        assert_eq!(strip(event, 7), event);
        let cut = "data: {\"choices\":[";
        assert_eq!(strip(cut, 7), cut);
    }

    #[test]
    fn held_bytes_are_bounded() {
        let mut stripper = UsageStripper::default();
        let long = Bytes::from(vec![b'x'; MAX_HELD + 1]);
        assert_eq!(stripper.strip(&long), long);
        assert!(stripper.finish().is_empty());
    }
}
