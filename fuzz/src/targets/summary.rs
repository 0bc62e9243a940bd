//! Request bodies: their summary, and the position of the model name.

use tidegate_providers::RequestSummary;
use tidegate_providers::request::{PathPurpose, model_spans, plain_path};

use super::response::dialect;
use crate::input;

/// The dialect and the path in the first line, the body below.
pub(super) fn summary(bytes: &[u8]) {
    let Some((line, body)) = input::text_line(bytes) else { return };
    let dialect = dialect(line.bytes().next().unwrap_or_default());
    let path = plain_path(line.get(1..).unwrap_or_default());
    let purpose = PathPurpose::lookup(dialect, &path).unwrap_or(PathPurpose::declared(dialect));
    let summary = RequestSummary::read(&purpose, body);
    assert_eq!(
        summary,
        RequestSummary::read(&purpose, body),
        "the summary differs the second time"
    );
    for name in summary.model.iter().chain(&summary.user) {
        assert!(!name.is_empty(), "an empty name");
    }
    for span in model_spans(body) {
        let name = &body[span];
        assert!(name.starts_with(b"\"") && name.ends_with(b"\""), "a model without quotes");
    }
    // If the body is JSON with one plain model name, the summary has that name.
    if let Ok(serde_json::Value::Object(members)) = serde_json::from_slice(body)
        && let Some(serde_json::Value::String(model)) = members.get("model")
        && (1..=256).contains(&model.len())
        && purpose.model.is_none()
        && model_spans(body).len() == 1
    {
        assert_eq!(summary.model.as_deref(), Some(model.as_str()), "the summary has another model");
    }
}
