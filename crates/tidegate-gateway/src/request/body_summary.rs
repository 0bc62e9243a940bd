//! Summarizes a request body: parsed if possible, otherwise estimated by its size.
//!
//! An unreadable body is never free of charge. The content type is ignored, because many servers
//! ignore it too.

use std::borrow::Cow;

use tidegate_providers::RequestSummary;
use tidegate_providers::request::PathPurpose;

use crate::request::content_decoding::{self, BodyText, Codings};
use crate::request::form;
use crate::request::token_estimate::TokenEstimate;

/// Summary of a request body.
pub(crate) struct BodySummary {
    pub(crate) request: RequestSummary,
    /// How the tokens were estimated; `None` if they were counted.
    pub(crate) estimate: Option<TokenEstimate>,
}

impl BodySummary {
    /// Summary of a request without tokens to count.
    pub(crate) fn without_tokens(purpose: &PathPurpose<'_>) -> Self {
        Self { request: RequestSummary::of_path(purpose), estimate: None }
    }

    /// Reads a body of which `prefix` is available. `size` is the size of the complete body, if
    /// known.
    pub(crate) fn read(
        purpose: &PathPurpose<'_>,
        codings: &Codings,
        prefix: &[u8],
        size: Option<u64>,
    ) -> Self {
        let length = length(prefix);
        let is_complete = size == Some(length);
        if is_plain(codings, prefix) {
            let request = RequestSummary::read(purpose, prefix);
            if is_complete && (request.is_complete || prefix.is_empty()) {
                return Self { request, estimate: None };
            }
            let reserved = size.unwrap_or(length);
            return Self::estimated(
                request,
                TokenEstimate::text(reserved),
                (length, reserved),
                None,
            );
        }
        let reserved = size.unwrap_or(length);
        let decoded = codings.decode(prefix);
        let (text, decoded_size) = match &decoded {
            BodyText::Plain(text) => (*text, None),
            BodyText::Decoded(text) => (text.as_slice(), Some(self::length(text))),
            BodyText::TooLarge(max_size) => {
                (&[][..], Some(u64::try_from(*max_size).unwrap_or(u64::MAX)))
            }
            // A server that does not know the coding parses the body as it is.
            BodyText::Undecodable => (prefix, None),
        };
        let text = match text {
            [] => Cow::Borrowed(text),
            text => content_decoding::to_utf8(text),
        };
        let mut request = RequestSummary::read(purpose, &text);
        if request.is_complete && is_complete {
            return Self { request, estimate: None };
        }
        let estimate = match decoded {
            BodyText::Plain(_) if looks_like_json(&text) => TokenEstimate::text(reserved),
            BodyText::Plain(_) => TokenEstimate::for_purpose(purpose, reserved),
            _ => TokenEstimate::encoded(reserved),
        };
        request.model = request.model.or_else(|| form::model(&text).map(Cow::into_owned));
        Self::estimated(request, estimate, (length, reserved), decoded_size)
    }

    /// Uses the model of the path, if there is one, since the provider uses that one.
    pub(crate) fn set_model_from_path(&mut self, purpose: &PathPurpose<'_>) {
        if let Some(model) = purpose.model {
            self.request.model = Some(model.to_owned());
        }
    }

    /// Adds the estimate of a body: for its prefix at least as many tokens as its size, or its
    /// decoded size, suggests, plus an estimate of the rest.
    fn estimated(
        mut request: RequestSummary,
        estimate: TokenEstimate,
        (prefix, reserved): (u64, u64),
        decoded: Option<u64>,
    ) -> Self {
        let prefix_tokens = match decoded {
            Some(decoded) => TokenEstimate::text(reserved).tokens(decoded),
            None => estimate.tokens(prefix),
        };
        let rest = estimate.tokens(reserved.saturating_sub(prefix));
        request.input_tokens = request.input_tokens.max(prefix_tokens).saturating_add(rest);
        Self { request, estimate: Some(estimate) }
    }
}

/// Maximum number of bytes to read for a summary. The body may have to be decoded first.
pub(crate) fn read_size(codings: &Codings, body: &[u8]) -> usize {
    if is_plain(codings, body) {
        body.len()
    } else {
        content_decoding::max_decoded_size(body.len())
    }
}

/// Whether a body needs no decoding. Most bodies do not.
fn is_plain(codings: &Codings, body: &[u8]) -> bool {
    codings.is_empty() && (body.is_empty() || looks_like_json(body))
}

/// Whether a text starts like a JSON object in UTF-8, as opposed to UTF-16.
pub(crate) fn looks_like_json(text: &[u8]) -> bool {
    matches!(text.trim_ascii_start(), [b'{', rest @ ..] if rest.first() != Some(&0))
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_ENCODING;
    use http::{HeaderMap, HeaderValue};
    use tidegate_providers::Dialect;

    use super::*;

    fn read(path: &str, body: &[u8], size: Option<u64>) -> BodySummary {
        tidegate_providers::tokens::prepare();
        let purpose = PathPurpose::lookup(Dialect::OpenAi, path).unwrap();
        BodySummary::read(&purpose, &Codings::default(), body, size)
    }

    fn complete(path: &str, body: &[u8]) -> BodySummary {
        read(path, body, Some(length(body)))
    }

    const CHAT: &str = "/v1/chat/completions";

    #[test]
    fn readable_bodies_are_counted() {
        let text = "the tide comes in and the tide goes out, ".repeat(10);
        let body = format!(r#" {{"model":"m","messages":[{{"content":"{text}"}}]}}"#);
        let counted = complete(CHAT, body.as_bytes());
        assert!(counted.estimate.is_none() && counted.request.input_tokens > 80);
        let with_bom = ["\u{feff}", &body].concat();
        let utf_16: Vec<u8> = body.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for body in [with_bom.as_bytes(), &utf_16] {
            let read = complete(CHAT, body);
            assert_eq!(read.request, counted.request);
            assert!(read.estimate.is_none());
        }
    }

    #[test]
    fn unreadable_bodies_are_estimated() {
        let zeros = vec![0; 4_000];
        for (body, min_tokens) in [
            (&b"x".repeat(4_000)[..], 1_000),
            (&zeros, 1_000),
            (&[b"{\"model\":\"m\",\"x\":\"", &b"y".repeat(4_000)[..]].concat(), 1_000),
            (&[b"garbage{", &b"y".repeat(4_000)[..]].concat(), 1_000),
            (&[b"[{\"messages\":\"", &b"y".repeat(4_000)[..]].concat(), 1_000),
        ] {
            let read = complete(CHAT, body);
            assert!(read.estimate.is_some());
            assert!((min_tokens..min_tokens + 10).contains(&read.request.input_tokens));
        }
        assert!(complete(CHAT, b"").estimate.is_none(), "an empty body has no tokens");
        let recording = complete("/v1/audio/transcriptions", &vec![1; 512_000]);
        assert_eq!(recording.request.input_tokens, 1_000);
    }

    #[test]
    fn unread_rest_is_estimated_by_size() {
        let prefix = [b"{\"model\":\"m\",\"messages\":\"", &b"y".repeat(4_000)[..]].concat();
        let known = read(CHAT, &prefix, Some(length(&prefix) + 4_000));
        assert_eq!(known.request.model.as_deref(), Some("m"));
        assert!((2_000..2_020).contains(&known.request.input_tokens));
        assert_eq!(known.estimate.unwrap().extra(length(&prefix) + 4_000), 0);
        let unknown = read(CHAT, &prefix, None);
        assert!((1_000..1_020).contains(&unknown.request.input_tokens));
        assert_eq!(unknown.estimate.unwrap().extra(length(&prefix) + 4_000), 1_000);
    }

    #[test]
    fn a_falsely_declared_coding_hides_nothing() {
        tidegate_providers::tokens::prepare();
        let purpose = PathPurpose::lookup(Dialect::OpenAi, CHAT).unwrap();
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        let codings = Codings::from_headers(&headers);
        let body = br#"{"model":"m","prompt":"a b c d e f g"}"#;
        let read = BodySummary::read(&purpose, &codings, body, Some(length(body)));
        assert!(read.request.input_tokens >= 7 && read.request.model.as_deref() == Some("m"));
        let noise = b"z".repeat(1_000);
        let read = BodySummary::read(&purpose, &codings, &noise, Some(1_000));
        assert_eq!(read.request.input_tokens, 1_000, "encoded bytes grow when decoded");
    }
}
