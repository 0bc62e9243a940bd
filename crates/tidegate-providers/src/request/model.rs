//! Where a request names its model: in its body, and in its path.

use std::ops::Range;

/// No request names its model more often.
const MOST_NAMES: usize = 8;

/// Where the model is named in a body of JSON: the values of the members `model` at the top, with
/// their quotes. Nothing if the body is no object, ends too early, or has more than 8 such members.
///
/// ```
/// use tidegate_providers::request::model_spans;
/// let body = br#"{"messages":[{"model":"x"}], "model" : "gpt-4o", "n":1}"#;
/// let spans = model_spans(body);
/// assert_eq!(spans.len(), 1);
/// assert_eq!(&body[spans[0].clone()], br#""gpt-4o""#);
/// ```
#[must_use]
pub fn model_spans(body: &[u8]) -> Vec<Range<usize>> {
    let mut scanner = Scanner { body, at: 0 };
    let mut spans = Vec::new();
    scanner.members(&mut spans).map_or_else(Vec::new, |()| spans)
}

/// A path and query with another model in the place of this one, where the path names it: as Gemini
/// does (`models/NAME:method`), or as Azure does (`deployments/NAME/`). `None` if it does not.
///
/// ```
/// use tidegate_providers::request::with_model;
/// let path = "/v1beta/models/gemini-2.5-pro:generateContent?alt=sse";
/// let changed = with_model(path, "gemini-2.5-pro", "gemini-2.5-flash").unwrap();
/// assert_eq!(changed, "/v1beta/models/gemini-2.5-flash:generateContent?alt=sse");
/// assert_eq!(with_model("/v1/chat/completions", "gpt-4o", "other"), None);
/// ```
#[must_use]
pub fn with_model(target: &str, from: &str, to: &str) -> Option<String> {
    let path = target.split('?').next().unwrap_or_default();
    let start = match path.find("/deployments/") {
        Some(at) => at + "/deployments/".len(),
        None => path.rfind('/')? + 1,
    };
    let rest = path.get(start..)?.strip_prefix(from)?;
    let is_deployment = path.contains("/deployments/");
    let ends = if is_deployment { rest.starts_with('/') } else { rest.starts_with(':') };
    let after = target.get(start + from.len()..)?;
    ends.then(|| [target.get(..start).unwrap_or_default(), to, after].concat())
}

/// Goes over JSON without reading it.
struct Scanner<'b> {
    body: &'b [u8],
    at: usize,
}

impl Scanner<'_> {
    /// Goes over the members of the object at the top.
    fn members(&mut self, spans: &mut Vec<Range<usize>>) -> Option<()> {
        self.skip_spaces();
        self.expect(b'{')?;
        loop {
            self.skip_spaces();
            if self.peek()? == b'}' {
                return Some(());
            }
            let name = self.string()?;
            self.skip_spaces();
            self.expect(b':')?;
            self.skip_spaces();
            let is_text = self.peek()? == b'"';
            let value = self.value()?;
            if is_text && self.body.get(name)? == b"\"model\"" {
                if spans.len() == MOST_NAMES {
                    return None;
                }
                spans.push(value);
            }
            self.skip_spaces();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Goes over a value of any kind.
    fn value(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b'}' | b']' if depth == 0 => return Some(start..self.at),
                _ => self.at += 1,
            }
            if depth == 0 && self.is_closed(start) {
                return Some(start..self.at);
            }
        }
    }

    /// Whether the value that began at `start` is of a kind that ends with a sign of its own, and not
    /// with what follows it.
    fn is_closed(&self, start: usize) -> bool {
        matches!(self.body.get(start), Some(b'"' | b'{' | b'['))
    }

    /// Goes over a text in quotes.
    fn string(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        self.expect(b'"')?;
        loop {
            match self.peek()? {
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return Some(start..self.at);
                }
                _ => self.at += 1,
            }
        }
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(body: &str) -> Vec<&str> {
        model_spans(body.as_bytes()).into_iter().map(|span| &body[span]).collect()
    }

    #[test]
    fn only_models_at_the_top_are_found() {
        for (body, models) in [
            (r#"{"model":"a"}"#, vec![r#""a""#]),
            (r#" { "model" : "a" , "x" : 1 } "#, vec![r#""a""#]),
            (r#"{"x":[1,{"model":"b"},"}"],"model":"a\"}"}"#, vec![r#""a\"}""#]),
            (r#"{"x":-1.5e3,"y":true,"z":null,"model":"a"}"#, vec![r#""a""#]),
            (r#"{"model":"a","n":{"model":"b"},"model":"c"}"#, vec![r#""a""#, r#""c""#]),
            (r#"{"model":7,"models":"a","Model":"b"}"#, vec![]),
            (r#"{"x":"\"model\":\"a\""}"#, vec![]),
            (r#"["model","a"]"#, vec![]),
            (r#"{"model":"a""#, vec![]),
            (r#"{"model":"a"#, vec![]),
            ("{}", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(named(body), models, "{body}");
        }
    }

    #[test]
    fn a_body_with_very_many_models_has_none() {
        let body = |many| format!("{{{}\"x\":1}}", r#""model":"a","#.repeat(many));
        assert_eq!(named(&body(8)).len(), 8);
        assert!(named(&body(9)).is_empty());
    }

    #[test]
    fn a_path_names_the_model_in_one_place() {
        let azure = "/openai/deployments/gpt-4o/chat/completions?api-version=1";
        assert_eq!(
            with_model(azure, "gpt-4o", "mini").unwrap(),
            "/openai/deployments/mini/chat/completions?api-version=1"
        );
        assert_eq!(with_model(azure, "gpt-4", "mini"), None);
        let gemini = "/v1beta/models/gemini:countTokens";
        assert_eq!(with_model(gemini, "gemini", "x").unwrap(), "/v1beta/models/x:countTokens");
        assert_eq!(with_model(gemini, "gem", "x"), None);
        assert_eq!(with_model("/v1beta/models/g%65m:countTokens", "gem", "x"), None);
    }
}
