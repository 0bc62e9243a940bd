//! Revisions as entity tags: `"7"`.

use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;

use super::problem::AdminProblem;

/// Returns the revision that a change expects. Without `If-Match`, or with `*`, any revision will
/// do.
pub(super) fn expected_revision(headers: &HeaderMap) -> Result<Option<u64>, AdminProblem> {
    let mut fields = headers.get_all(IF_MATCH).iter();
    let field = match (fields.next(), fields.next()) {
        (None, _) => return Ok(None),
        (Some(field), None) => field.to_str().unwrap_or_default().trim(),
        _ => "",
    };
    if field == "*" {
        return Ok(None);
    }
    let revision = field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let revision = revision.and_then(|revision| revision.parse().ok());
    let rule = "must be the expected revision in the form of the `etag` header, such as \"7\"";
    revision.map(Some).ok_or_else(|| AdminProblem::field("if-match", rule))
}

/// Adds the revision to a response.
pub(super) fn with_etag(mut response: Response, revision: u64) -> Response {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[&str]) -> Option<Option<u64>> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(IF_MATCH, HeaderValue::from_str(field).unwrap());
        }
        expected_revision(&headers).ok()
    }

    #[test]
    fn revisions_are_single_quoted_numbers() {
        assert_eq!(read(&[]), Some(None));
        assert_eq!(read(&["*"]), Some(None));
        assert_eq!(read(&[" \"7\" "]), Some(Some(7)));
        for wrong in ["7", "W/\"7\"", "\"7\", \"8\"", "\"x\"", "\"\"", "\"-1\""] {
            assert_eq!(read(&[wrong]), None, "{wrong}");
        }
        assert_eq!(read(&["\"7\"", "\"7\""]), None);
    }
}
