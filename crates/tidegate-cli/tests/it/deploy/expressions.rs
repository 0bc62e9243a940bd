//! Reads the metrics and labels of PromQL expressions, as far as the dashboard and the alerts use
//! the language.

/// A metric in an expression, or a label in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) metrics: Vec<String>,
    /// Labels of matchers with their values, and labels of groupings without a value.
    pub(super) labels: Vec<(String, Option<String>)>,
}

/// Words of the language that are not metrics.
const WORDS: [&str; 8] = ["and", "or", "unless", "by", "without", "on", "ignoring", "bool"];

/// A word, a text in quotes, or a sign.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(char),
}

fn tokens(expression: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |it: char| it.is_ascii_alphanumeric() || "_:.$".contains(it);
        let length = match first {
            '"' => {
                let (text, _) = rest[1..].split_once('"').unwrap();
                tokens.push(Token::Text(text.to_owned()));
                text.len() + 2
            }
            first if is_word(first) => {
                let length = rest.find(|it| !is_word(it)).unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..length].to_owned()));
                length
            }
            sign => {
                tokens.push(Token::Sign(sign));
                sign.len_utf8()
            }
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Returns the names in an expression.
pub(super) fn names(expression: &str) -> Names {
    let tokens = tokens(expression);
    let mut names = Names::default();
    let mut closing = None;
    for (index, token) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1);
        match (closing, token) {
            (Some(end), Token::Sign(sign)) if *sign == end => closing = None,
            (Some('}'), Token::Word(label)) => {
                let value = tokens[index + 1..].iter().find_map(|token| match token {
                    Token::Text(text) => Some(text.clone()),
                    _ => None,
                });
                // Only an equality names one value.
                let is_equal = next == Some(&Token::Sign('='))
                    && matches!(tokens.get(index + 2), Some(Token::Text(_)));
                names.labels.push((label.clone(), value.filter(|_| is_equal)));
            }
            (Some(')'), Token::Word(label)) => names.labels.push((label.clone(), None)),
            (None, Token::Sign('{')) => closing = Some('}'),
            (None, Token::Sign('[')) => closing = Some(']'),
            (None, Token::Word(word)) => {
                let is_grouping = ["by", "without", "on", "ignoring"].contains(&word.as_str());
                if is_grouping {
                    closing = Some(')');
                } else if next != Some(&Token::Sign('('))
                    && !WORDS.contains(&word.as_str())
                    && !is_grouped_call(&tokens[index..])
                    && !word.starts_with(|it: char| it.is_ascii_digit())
                {
                    names.metrics.push(word.clone());
                }
            }
            // Other signs, values of labels, and durations.
            _ => {}
        }
    }
    names
}

/// Whether an aggregation such as `sum by (label) (...)` begins here.
fn is_grouped_call(tokens: &[Token]) -> bool {
    let grouping = |word: &str| word == "by" || word == "without";
    matches!(tokens.get(1), Some(Token::Word(word)) if grouping(word))
}

#[test]
fn names_are_found() {
    let found =
        names("sum by (a, b) (rate(m_total{c=\"x\", d=~\"y.*\"}[5m])) / max(n) > 0.5 and up == 1");
    assert_eq!(found.metrics, ["m_total", "n", "up"]);
    let label = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
    let labels = [("a", None), ("b", None), ("c", Some("x")), ("d", None)];
    assert_eq!(found.labels, labels.map(|(name, value)| label(name, value)));
}
