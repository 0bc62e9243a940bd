//! What a body asks for: read where it can be read, else estimated by its size.
//!
//! Nothing is free because it cannot be read. The content type does not matter, since many servers do
//! not look at it.

use std::borrow::Cow;

use tidegate_providers::RequestSummary;
use tidegate_providers::request::Purpose;

use crate::request::content_decoding::{self, BodyText, Codings};
use crate::request::form;
use crate::request::token_estimate::TokenEstimate;

/// What a body asks for.
pub(crate) struct BodySummary {
    pub(crate) asked: RequestSummary,
    /// How its tokens are estimated; `None` if they were counted.
    pub(crate) estimate: Option<TokenEstimate>,
}

impl BodySummary {
    /// Of a request that has no tokens to count.
    pub(crate) fn uncounted(purpose: &Purpose<'_>) -> Self {
        Self { asked: RequestSummary::of_path(purpose), estimate: None }
    }

    /// Reads a body, of which the beginning is there, or all of it. The size is that of all of it, if it
    /// is known.
    pub(crate) fn read(
        purpose: &Purpose<'_>,
        codings: &Codings,
        begin: &[u8],
        size: Option<u64>,
    ) -> Self {
        let length = length(begin);
        let is_whole = size == Some(length);
        if is_plain(codings, begin) {
            let asked = RequestSummary::read(purpose, begin);
            if is_whole && (asked.is_complete || begin.is_empty()) {
                return Self { asked, estimate: None };
            }
            let charged = size.unwrap_or(length);
            return Self::estimated(
                asked,
                TokenEstimate::of_text(charged),
                (length, charged),
                None,
            );
        }
        let charged = size.unwrap_or(length);
        let decoded = codings.decode(begin);
        let (text, coded) = match &decoded {
            BodyText::Plain(text) => (*text, None),
            BodyText::Decoded(text) => (text.as_slice(), Some(self::length(text))),
            BodyText::TooLarge(bound) => (&[][..], Some(u64::try_from(*bound).unwrap_or(u64::MAX))),
            // Servers that do not know the coding read the body as it is.
            BodyText::Undecodable => (begin, None),
        };
        let text = match text {
            [] => Cow::Borrowed(text),
            text => content_decoding::to_utf8(text),
        };
        let mut asked = RequestSummary::read(purpose, &text);
        if asked.is_complete && is_whole {
            return Self { asked, estimate: None };
        }
        let estimate = match decoded {
            BodyText::Plain(_) if begins_like_json(&text) => TokenEstimate::of_text(charged),
            BodyText::Plain(_) => TokenEstimate::of(purpose, charged),
            _ => TokenEstimate::of_coded(charged),
        };
        asked.model = asked.model.or_else(|| form::model(&text).map(Cow::into_owned));
        Self::estimated(asked, estimate, (length, charged), coded)
    }

    /// Takes the model from the path, if that names one: it is the one that is used.
    pub(crate) fn name_model(&mut self, purpose: &Purpose<'_>) {
        if let Some(model) = purpose.model {
            self.asked.model = Some(model.to_owned());
        }
    }

    /// What was read of a body, with at least as many tokens as its size makes: that of its beginning,
    /// or of what that was decoded to, and that of all that is charged.
    fn estimated(
        mut asked: RequestSummary,
        estimate: TokenEstimate,
        (begin, charged): (u64, u64),
        decoded: Option<u64>,
    ) -> Self {
        let begun = match decoded {
            Some(decoded) => TokenEstimate::of_text(charged).tokens(decoded),
            None => estimate.tokens(begin),
        };
        let rest = estimate.tokens(charged.saturating_sub(begin));
        asked.input_tokens = asked.input_tokens.max(begun).saturating_add(rest);
        Self { asked, estimate: Some(estimate) }
    }
}

/// How many bytes are read at most to summarise a body: it may have to be decoded first.
pub(crate) fn read_size(codings: &Codings, body: &[u8]) -> usize {
    if is_plain(codings, body) { body.len() } else { content_decoding::bound(body.len()) }
}

/// Whether a body is to be read as it is: most are.
fn is_plain(codings: &Codings, body: &[u8]) -> bool {
    codings.is_empty() && (body.is_empty() || begins_like_json(body))
}

/// Whether a text begins as an object in JSON does, in UTF-8 rather than UTF-16.
pub(crate) fn begins_like_json(text: &[u8]) -> bool {
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
        let purpose = Purpose::of(Dialect::OpenAi, path).unwrap();
        BodySummary::read(&purpose, &Codings::default(), body, size)
    }

    fn whole(path: &str, body: &[u8]) -> BodySummary {
        read(path, body, Some(length(body)))
    }

    const CHAT: &str = "/v1/chat/completions";

    #[test]
    fn what_can_be_read_is_counted() {
        let words = "the tide comes in and the tide goes out, ".repeat(10);
        let body = format!(r#" {{"model":"m","messages":[{{"content":"{words}"}}]}}"#);
        let counted = whole(CHAT, body.as_bytes());
        assert!(counted.estimate.is_none() && counted.asked.input_tokens > 80);
        let marked = ["\u{feff}", &body].concat();
        let utf_16: Vec<u8> = body.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for body in [marked.as_bytes(), &utf_16] {
            let read = whole(CHAT, body);
            assert_eq!(read.asked, counted.asked);
            assert!(read.estimate.is_none());
        }
    }

    #[test]
    fn what_cannot_be_read_is_estimated() {
        let zeros = vec![0; 4_000];
        for (body, least) in [
            (&b"x".repeat(4_000)[..], 1_000),
            (&zeros, 1_000),
            (&[b"{\"model\":\"m\",\"x\":\"", &b"y".repeat(4_000)[..]].concat(), 1_000),
            (&[b"garbage{", &b"y".repeat(4_000)[..]].concat(), 1_000),
            (&[b"[{\"messages\":\"", &b"y".repeat(4_000)[..]].concat(), 1_000),
        ] {
            let read = whole(CHAT, body);
            assert!(read.estimate.is_some());
            assert!((least..least + 10).contains(&read.asked.input_tokens));
        }
        assert!(whole(CHAT, b"").estimate.is_none(), "nothing is nothing");
        let recording = whole("/v1/audio/transcriptions", &vec![1; 512_000]);
        assert_eq!(recording.asked.input_tokens, 1_000);
    }

    #[test]
    fn the_rest_of_a_body_counts_by_its_size() {
        let begin = [b"{\"model\":\"m\",\"messages\":\"", &b"y".repeat(4_000)[..]].concat();
        let known = read(CHAT, &begin, Some(length(&begin) + 4_000));
        assert_eq!(known.asked.model.as_deref(), Some("m"));
        assert!((2_000..2_020).contains(&known.asked.input_tokens));
        assert_eq!(known.estimate.unwrap().extra(length(&begin) + 4_000), 0);
        let unknown = read(CHAT, &begin, None);
        assert!((1_000..1_020).contains(&unknown.asked.input_tokens));
        assert_eq!(unknown.estimate.unwrap().extra(length(&begin) + 4_000), 1_000);
    }

    #[test]
    fn a_coding_that_is_declared_and_not_there_hides_nothing() {
        let purpose = Purpose::of(Dialect::OpenAi, CHAT).unwrap();
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        let codings = Codings::of(&headers);
        let body = br#"{"model":"m","prompt":"a b c d e f g"}"#;
        let read = BodySummary::read(&purpose, &codings, body, Some(length(body)));
        assert!(read.asked.input_tokens >= 7 && read.asked.model.as_deref() == Some("m"));
        let noise = b"z".repeat(1_000);
        let read = BodySummary::read(&purpose, &codings, &noise, Some(1_000));
        assert_eq!(read.asked.input_tokens, 1_000, "coded bytes are more when decoded");
    }
}
