//! Maps model names of one provider to those of a fallback.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use tidegate_providers::request::with_model;

use crate::request::call::{Content, OutgoingRequest};
use crate::request::edits::Edit;

/// Matches all models that are not listed.
const WILDCARD: &str = "*";

/// Model names at a fallback, by the name that callers use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelMap(HashMap<String, String>);

/// The model of a request cannot be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model name in the request cannot be replaced by that of the fallback")]
pub(crate) struct RenameError;

impl FromIterator<(String, String)> for ModelMap {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(names: I) -> Self {
        Self(names.into_iter().collect())
    }
}

impl ModelMap {
    /// Returns the name of a model at the fallback; `None` if it is the same.
    fn get(&self, model: &str) -> Option<&str> {
        self.0.get(model).or_else(|| self.0.get(WILDCARD)).map(String::as_str)
    }

    /// Returns the request with only the model name replaced, or `None` if the name is the same.
    pub(crate) fn rename(
        &self,
        request: &Arc<OutgoingRequest>,
    ) -> Result<Option<OutgoingRequest>, RenameError> {
        let from = request.summary.model.as_deref();
        let Some((from, to)) = from.and_then(|from| Some((from, self.get(from)?))) else {
            return Ok(None);
        };
        let Content::Buffered(content) = &request.content else { return Err(RenameError) };
        let target = with_model(&request.target, from, to);
        let spans = content.edit_spans.models(&content.bytes);
        let edits = rename_edits(&content.bytes, spans, (from, to), target.is_some());
        if edits.is_empty() && target.is_none() {
            return Err(RenameError);
        }
        let content = Content::Edited { edits, base: request.clone() };
        let mut headers = request.headers.clone();
        headers.remove(CONTENT_LENGTH);
        let mut summary = request.summary.clone();
        summary.model = Some(to.to_owned());
        Ok(Some(OutgoingRequest {
            method: request.method.clone(),
            target: target.map_or_else(|| request.target.clone(), Arc::from),
            headers,
            content,
            summary,
            dialect: request.dialect,
            path_endpoint: request.path_endpoint.clone(),
            supports_usage_option: request.supports_usage_option,
            estimate: request.estimate,
            resend_policy: request.resend_policy,
        }))
    }
}

/// Returns the edits that rename the model in a body. If the path names the model, the body may
/// name it too, also as `models/NAME`.
fn rename_edits(
    body: &[u8],
    spans: &[Range<usize>],
    (from, to): (&str, &str),
    is_in_path: bool,
) -> Vec<Edit> {
    let new_name = |old: &[u8]| {
        let qualified = format!("models/{from}");
        match serde_json::from_slice::<String>(old).ok()? {
            old if is_in_path && old == qualified => Some(format!("models/{to}")),
            old if is_in_path && old != from => None,
            _ => Some(to.to_owned()),
        }
    };
    let edit = |span: &Range<usize>| {
        let name = body.get(span.clone()).and_then(new_name)?;
        Some(Edit { span: span.clone(), text: serde_json::Value::from(name).to_string().into() })
    };
    spans.iter().filter_map(edit).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_providers::request::model_spans;

    use super::*;
    use crate::request::edits::apply;

    fn changed(body: &'static str, is_in_path: bool) -> Option<String> {
        let body = Bytes::from_static(body.as_bytes());
        let edits = rename_edits(&body, &model_spans(&body), ("a", "b\""), is_in_path);
        let text = String::from_utf8(apply(&body, &edits).concat()).unwrap();
        (!edits.is_empty()).then_some(text)
    }

    #[test]
    fn only_the_model_name_changes() {
        let body = r#"{ "n":1.0, "model" : "a","x":{"model":"a"} }"#;
        let expected = r#"{ "n":1.0, "model" : "b\"","x":{"model":"a"} }"#;
        assert_eq!(changed(body, false).unwrap(), expected);
        assert_eq!(changed(r#"{"messages":[]}"#, false), None);
        let body = r#"{"model":"models/a","content":{}}"#;
        assert_eq!(changed(body, true).unwrap(), r#"{"model":"models/b\"","content":{}}"#);
        assert_eq!(changed(r#"{"model":"c"}"#, true), None);
    }

    #[test]
    fn wildcard_matches_every_unlisted_model() {
        let names = [("a", "b"), ("*", "c")].map(|(from, to)| (from.to_owned(), to.to_owned()));
        let map: ModelMap = names.into_iter().collect();
        assert_eq!((map.get("a"), map.get("z")), (Some("b"), Some("c")));
        assert_eq!(ModelMap::default().get("a"), None);
    }
}
