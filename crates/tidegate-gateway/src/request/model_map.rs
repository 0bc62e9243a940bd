//! Models of one provider under the names that they have at another.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use tidegate_providers::request::{model_spans, with_model};

use crate::request::call::{Content, OutgoingRequest};

/// The name that stands for all models that are not named.
const ANY: &str = "*";

/// What models are called at a provider that calls fall back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelMap(HashMap<String, String>);

/// The model of a request stands where it cannot be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model of the request cannot be replaced by that of the fallback")]
pub(crate) struct NotRenamed;

impl FromIterator<(String, String)> for ModelMap {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(names: I) -> Self {
        Self(names.into_iter().collect())
    }
}

impl ModelMap {
    /// What a model is called there; `None` if it has the same name.
    fn get(&self, model: &str) -> Option<&str> {
        self.0.get(model).or_else(|| self.0.get(ANY)).map(String::as_str)
    }

    /// The request with the model under its name at the other provider, and nothing else changed.
    /// `None` if it has the same name there.
    pub(crate) fn rename(
        &self,
        request: &Arc<OutgoingRequest>,
    ) -> Result<Option<OutgoingRequest>, NotRenamed> {
        let from = request.asked.model.as_deref();
        let Some((from, to)) = from.and_then(|from| Some((from, self.get(from)?))) else {
            return Ok(None);
        };
        let Content::Buffered { bytes, .. } = &request.content else { return Err(NotRenamed) };
        let target = with_model(&request.target, from, to);
        let parts = renamed(bytes, from, to, target.is_some());
        if parts.is_none() && target.is_none() {
            return Err(NotRenamed);
        }
        let content = match parts {
            Some(parts) => Content::Parts { parts, _of: request.clone() },
            None => Content::Parts { parts: vec![bytes.clone()], _of: request.clone() },
        };
        let mut headers = request.headers.clone();
        headers.remove(CONTENT_LENGTH);
        let mut asked = request.asked.clone();
        asked.model = Some(to.to_owned());
        Ok(Some(OutgoingRequest {
            method: request.method.clone(),
            target: target.map_or_else(|| request.target.clone(), Arc::from),
            headers,
            content,
            asked,
            dialect: request.dialect,
            purpose: request.purpose.clone(),
            takes_usage_option: request.takes_usage_option,
            estimate: request.estimate,
            repetition: request.repetition,
        }))
    }
}

/// A body with other models, as pieces of it and the new names; `None` if it names none. Where the
/// path names the model, a body may do so too, and in the form of a path.
fn renamed(bytes: &Bytes, from: &str, to: &str, is_in_path: bool) -> Option<Vec<Bytes>> {
    let new_name = |old: &[u8]| {
        let long = format!("models/{from}");
        match serde_json::from_slice::<String>(old).ok()? {
            old if is_in_path && old == long => Some(format!("models/{to}")),
            old if is_in_path && old != from => None,
            _ => Some(to.to_owned()),
        }
    };
    let (mut parts, mut end) = (Vec::new(), 0);
    for span in model_spans(bytes) {
        let Some(name) = bytes.get(span.clone()).and_then(new_name) else { continue };
        parts.push(bytes.slice(end..span.start));
        parts.push(serde_json::Value::from(name).to_string().into());
        end = span.end;
    }
    if parts.is_empty() {
        return None;
    }
    parts.push(bytes.slice(end..));
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(body: &'static str, is_in_path: bool) -> Option<String> {
        let parts = renamed(&Bytes::from_static(body.as_bytes()), "a", "b\"", is_in_path)?;
        Some(String::from_utf8(parts.concat()).unwrap())
    }

    #[test]
    fn only_the_name_of_the_model_changes() {
        let body = r#"{ "n":1.0, "model" : "a","x":{"model":"a"} }"#;
        let expected = r#"{ "n":1.0, "model" : "b\"","x":{"model":"a"} }"#;
        assert_eq!(changed(body, false).unwrap(), expected);
        assert_eq!(changed(r#"{"messages":[]}"#, false), None);
        let body = r#"{"model":"models/a","content":{}}"#;
        assert_eq!(changed(body, true).unwrap(), r#"{"model":"models/b\"","content":{}}"#);
        assert_eq!(changed(r#"{"model":"c"}"#, true), None);
    }

    #[test]
    fn a_star_is_every_model_that_is_not_named() {
        let names = [("a", "b"), ("*", "c")].map(|(from, to)| (from.to_owned(), to.to_owned()));
        let map: ModelMap = names.into_iter().collect();
        assert_eq!((map.get("a"), map.get("z")), (Some("b"), Some("c")));
        assert_eq!(ModelMap::default().get("a"), None);
    }
}
