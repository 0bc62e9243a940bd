//! Edits of a buffered body: other values in a few places, and everything else as the caller wrote it.
//!
//! An edited body is sent as pieces of the original with texts in between, so that it takes no memory
//! of its own. Finding the places takes a pass over the body, which is made once for all attempts.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use tidegate_providers::request::model_spans;

use crate::request::stream_options;

/// A text in place of a part of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) span: Range<usize>,
    pub(crate) text: Bytes,
}

/// Where a body may have to be edited, as far as that was looked for.
#[derive(Debug, Default)]
pub(crate) struct EditSpans {
    usage_option: OnceLock<Option<Edit>>,
    models: OnceLock<Vec<Range<usize>>>,
}

impl EditSpans {
    pub(crate) const fn new() -> Self {
        Self { usage_option: OnceLock::new(), models: OnceLock::new() }
    }

    /// The edit that asks a stream for its usage; `None` if it makes no difference.
    pub(crate) fn usage_option(&self, body: &[u8]) -> Option<&Edit> {
        self.usage_option.get_or_init(|| stream_options::usage_edit(body)).as_ref()
    }

    /// Where the model is named.
    pub(crate) fn models(&self, body: &[u8]) -> &[Range<usize>] {
        self.models.get_or_init(|| model_spans(body))
    }
}

/// The pieces of an edited body. The edits may come in any order and do not overlap.
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
