//! Finds and replaces the model in a request: in its body or its path.

use std::ops::Range;

/// Maximum number of `model` members in a body.
const MAX_MEMBERS: usize = 8;

/// Returns the positions of the model in a JSON body: the values of its top-level `model` members,
/// including quotes. Empty if the body is not an object, is truncated, or has more than 8 such
/// members.
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

/// Replaces the model `from` by `to` in a path and query that names it as Gemini does
/// (`models/NAME:method`) or as Azure does (`deployments/NAME/`). Returns `None` if it does not.
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

/// Scans JSON without building a tree.
struct Scanner<'b> {
    body: &'b [u8],
    at: usize,
}

impl Scanner<'_> {
    /// Scans the members of the top-level object.
    fn members(&mut self, spans: &mut Vec<Range<usize>>) -> Option<()> {
        self.skip_whitespace();
        self.expect(b'{')?;
        loop {
            self.skip_whitespace();
            if self.peek()? == b'}' {
                return Some(());
            }
            let name = self.string()?;
            self.skip_whitespace();
            self.expect(b':')?;
            self.skip_whitespace();
            let is_text = self.peek()? == b'"';
            let value = self.value()?;
            if is_text && self.body.get(name)? == b"\"model\"" {
                if spans.len() == MAX_MEMBERS {
                    return None;
                }
                spans.push(value);
            }
            self.skip_whitespace();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Skips a value and returns its position.
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
            if depth == 0 && self.is_delimited(start) {
                return Some(start..self.at);
            }
        }
    }

    /// Returns whether the value at `start` has a closing delimiter: a string, an object or an
    /// array.
    fn is_delimited(&self, start: usize) -> bool {
        matches!(self.body.get(start), Some(b'"' | b'{' | b'['))
    }

    /// Skips a string and returns its position.
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

    fn skip_whitespace(&mut self) {
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

    fn models_in(body: &str) -> Vec<&str> {
        model_spans(body.as_bytes()).into_iter().map(|span| &body[span]).collect()
    }

    #[test]
    fn only_top_level_models_are_found() {
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
            assert_eq!(models_in(body), models, "{body}");
        }
    }

    #[test]
    fn body_with_too_many_models_has_none() {
        let body = |many| format!("{{{}\"x\":1}}", r#""model":"a","#.repeat(many));
        assert_eq!(models_in(&body(8)).len(), 8);
        assert!(models_in(&body(9)).is_empty());
    }

    #[test]
    fn model_in_a_path_is_replaced() {
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
