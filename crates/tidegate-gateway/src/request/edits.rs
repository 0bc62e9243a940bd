//! Edits of a buffered body: replaces a few spans and leaves everything else as the caller wrote
//! it.
//!
//! An edited body is sent as slices of the original with the new texts in between, so it needs no
//! copy. Finding the spans takes a pass over the body, which is made once for all attempts.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use tidegate_providers::request::model_spans;

use crate::request::stream_options;

/// Replaces a span of a body by a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) span: Range<usize>,
    pub(crate) text: Bytes,
}

/// Spans of a body that may have to be edited, found on first use.
#[derive(Debug, Default)]
pub(crate) struct EditSpans {
    usage_option: OnceLock<Option<Edit>>,
    models: OnceLock<Vec<Range<usize>>>,
}

impl EditSpans {
    pub(crate) const fn new() -> Self {
        Self { usage_option: OnceLock::new(), models: OnceLock::new() }
    }

    /// Returns the edit that adds the usage option; `None` if it is not needed.
    pub(crate) fn usage_option(&self, body: &[u8]) -> Option<&Edit> {
        self.usage_option.get_or_init(|| stream_options::usage_edit(body)).as_ref()
    }

    /// Returns the spans of the model name.
    pub(crate) fn models(&self, body: &[u8]) -> &[Range<usize>] {
        self.models.get_or_init(|| model_spans(body))
    }
}

/// Returns the parts of the edited body. The edits may be in any order and must not overlap.
pub(crate) fn apply<'e>(body: &Bytes, edits: impl IntoIterator<Item = &'e Edit>) -> Vec<Bytes> {
    let mut edits: Vec<&Edit> = edits.into_iter().collect();
    edits.sort_by_key(|edit| edit.span.start);
    let (mut parts, mut end) = (Vec::with_capacity(edits.len() * 2 + 1), 0);
    for edit in edits {
        parts.push(body.slice(end..edit.span.start));
        parts.push(edit.text.clone());
        end = edit.span.end;
    }
    parts.push(body.slice(end..));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_apply_in_any_order() {
        let body = Bytes::from_static(b"0123456789");
        let edit = |span, text: &'static str| Edit { span, text: text.into() };
        let edits = [edit(5..7, "B"), edit(1..1, "A"), edit(9..10, "")];
        assert_eq!(apply(&body, &edits).concat(), b"0A1234B78");
        assert_eq!(apply(&body, []).concat(), body);
    }
}
