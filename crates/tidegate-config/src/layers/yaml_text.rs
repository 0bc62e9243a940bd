//! Parses YAML text into values with positions.
//!
//! The sections are those of a TOML file. A top-level key that is no section but a provider, such as
//! `gemini`, is `providers.gemini`, and the keys of its table `rate_limits` belong to it.
//!
//! Values are resolved by the core schema of YAML 1.2: `yes` is a string. Anchors, aliases, tags and
//! several documents are rejected; a configuration does not need them.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use tidegate_providers::{Dialect, Provider};

use crate::sections::keys;
use crate::values::setting::{Position, Source};
use crate::values::value::{Entry, Node, Number, Value};
use crate::violation::{Rule, Violation};

/// Maximum depth of tables and lists. The deepest setting has five levels.
const MAX_DEPTH: usize = 32;
/// Error of the parser for more than 255 nested lists.
const PARSER_TOO_DEEP: &str = "recursion limit exceeded";

/// Parses YAML text and returns its top-level table. Syntax errors are added to `violations`; the
/// text is read up to the first one.
pub(crate) fn parse<'i>(
    text: &'i str,
    source: Source,
    violations: &mut Vec<Violation>,
) -> Value<'i> {
    let mut builder = Builder::new(text, source);
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        let read = match next {
            Ok((event, span)) => builder.add(event, span),
            Err(error) => {
                // The parser reads ahead, and may reach its own bound before ours.
                let rule = match error.info() {
                    PARSER_TOO_DEEP => Rule::TooDeep(MAX_DEPTH),
                    problem => Rule::Syntax(problem.to_owned()),
                };
                Err((rule, builder.position(error.marker().index())))
            }
        };
        if let Err((rule, position)) = read {
            violations.push(Violation { key: String::new(), value: None, rule, position });
            break;
        }
    }
    let mut top = builder.finish();
    if let Node::Table(entries) = &mut top.node {
        *entries = with_providers(std::mem::take(entries));
    }
    report_duplicates(&top, &mut Vec::new(), violations);
    top
}

/// Reports keys that occur twice in a table. Merging the layers would keep the last one.
fn report_duplicates<'t>(
    value: &'t Value<'_>,
    names: &mut Vec<&'t str>,
    violations: &mut Vec<Violation>,
) {
    let Node::Table(entries) = &value.node else { return };
    for (index, entry) in entries.iter().enumerate() {
        names.push(&entry.key);
        if entries[..index].iter().any(|earlier| earlier.key == entry.key) {
            violations.push(Violation::of_names(names, Rule::Duplicate, entry.position));
        }
        report_duplicates(&entry.value, names, violations);
        names.pop();
    }
}

/// Builds values from the events of the parser.
struct Builder<'i> {
    source: Source,
    /// Byte offsets of the characters; empty if the text is ASCII.
    offsets: Vec<usize>,
    /// Open tables and lists, the outermost first.
    open: Vec<Open<'i>>,
    top: Option<Value<'i>>,
}

/// An open table or list.
struct Open<'i> {
    value: Value<'i>,
    /// Key of the next value, in a table.
    key: Option<(Cow<'i, str>, Position)>,
}

type Failure = (Rule, Position);

impl<'i> Builder<'i> {
    fn new(text: &str, source: Source) -> Self {
        let offsets = if text.is_ascii() {
            Vec::new()
        } else {
            text.char_indices().map(|(at, _)| at).chain([text.len()]).collect()
        };
        Self { source, offsets, open: Vec::new(), top: None }
    }

    /// Returns the position of a character.
    fn position(&self, index: usize) -> Position {
        let at = self.offsets.get(index).copied().unwrap_or(index);
        Position { source: self.source, at: Some(at) }
    }

    fn add(&mut self, event: Event<'i>, span: Span) -> Result<(), Failure> {
        let position = self.position(span.start.index());
        let unsupported = |what| Err((Rule::YamlFeature(what), position));
        match event {
            Event::Alias(_) => unsupported("an alias (*)"),
            Event::Scalar(.., anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor != 0 =>
            {
                unsupported("an anchor (&)")
            }
            Event::Scalar(.., Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => unsupported("a tag (!)"),
            Event::Scalar(text, style, ..) => self.scalar(text, style, position),
            Event::SequenceStart(..) => self.start(Node::List(Vec::new()), position),
            Event::MappingStart(..) => self.start(Node::Table(Vec::new()), position),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { value, .. }) => self.value(value),
                None => Ok(()),
            },
            Event::DocumentStart(_) if self.top.is_some() => unsupported("a second document (---)"),
            _ => Ok(()),
        }
    }

    fn start(&mut self, node: Node<'i>, position: Position) -> Result<(), Failure> {
        if self.open.len() == MAX_DEPTH {
            return Err((Rule::TooDeep(MAX_DEPTH), position));
        }
        if self.expects_key() {
            return Err((Rule::YamlFeature("a key that is not a string"), position));
        }
        self.open.push(Open { value: Value { node, position }, key: None });
        Ok(())
    }

    /// Adds a scalar, as a value or as the key of the next one.
    fn scalar(
        &mut self,
        text: Cow<'i, str>,
        style: ScalarStyle,
        position: Position,
    ) -> Result<(), Failure> {
        if self.expects_key() {
            if let Some(open) = self.open.last_mut() {
                open.key = Some((text, position));
            }
            return Ok(());
        }
        let node = if style == ScalarStyle::Plain { plain(text) } else { Node::Text(text) };
        self.value(Value { node, position })
    }

    fn expects_key(&self) -> bool {
        let open = self.open.last();
        open.is_some_and(|open| matches!(open.value.node, Node::Table(_)) && open.key.is_none())
    }

    /// Adds a complete value to the table or list that it is in.
    fn value(&mut self, value: Value<'i>) -> Result<(), Failure> {
        let Some(open) = self.open.last_mut() else {
            self.top = Some(value);
            return Ok(());
        };
        match (&mut open.value.node, open.key.take()) {
            (Node::Table(entries), Some((key, position))) => {
                entries.push(Entry { key, position, value });
            }
            (Node::List(items), _) => items.push(value),
            _ => {}
        }
        Ok(())
    }

    /// Returns the top-level value. An empty text is an empty table, and what is still open after a
    /// syntax error is closed, so that its values are checked too.
    fn finish(mut self) -> Value<'i> {
        while let Some(open) = self.open.pop() {
            let _ = self.value(open.value);
        }
        let position = self.position(0);
        let top = self.top.unwrap_or(Value { node: Node::Null, position });
        match top.node {
            Node::Null => Value { node: Node::Table(Vec::new()), ..top },
            _ => top,
        }
    }
}

/// Resolves a plain scalar by the core schema.
fn plain(text: Cow<'_, str>) -> Node<'_> {
    match &*text {
        "" | "~" | "null" | "Null" | "NULL" => return Node::Null,
        "true" | "True" | "TRUE" => return Node::Bool(true),
        "false" | "False" | "FALSE" => return Node::Bool(false),
        _ => {}
    }
    number(&text).map_or(Node::Text(text), Node::Number)
}

fn number(text: &str) -> Option<Number> {
    let radix = |prefix, radix| {
        let digits = text.strip_prefix(prefix)?;
        u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))
    };
    if let Some(whole) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Some(Number::Whole(whole));
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = |byte: u8| byte.is_ascii_digit() || b".eE+-".contains(&byte);
    let has_digit = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && unsigned.bytes().any(|byte| byte.is_ascii_digit());
    if !has_digit || !unsigned.bytes().all(is_number) {
        return None;
    }
    let whole = text.parse().ok().map(Number::Whole);
    let whole = whole.or_else(|| text.parse().ok().map(Number::Negative));
    whole.or_else(|| text.parse().ok().map(Number::Float))
}

/// Moves top-level providers into the table `providers`.
fn with_providers(entries: Vec<Entry<'_>>) -> Vec<Entry<'_>> {
    let sections = keys::below("");
    let is_provider = |entry: &Entry<'_>| {
        let is_section = sections.contains(&&*entry.key);
        !is_section && Dialect::of(&Provider::new(&entry.key)) != Dialect::Compatible
    };
    let (providers, mut entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_provider);
    let providers =
        providers.into_iter().map(|entry| Entry { value: with_rate_limits(entry.value), ..entry });
    let mut providers: Vec<_> = providers.collect();
    let table = entries.iter_mut().find(|entry| entry.key == "providers");
    match table.map(|entry| &mut entry.value.node) {
        Some(Node::Table(known)) => known.append(&mut providers),
        Some(_) => {}
        None => {
            let position = providers.first().map(|entry| entry.position);
            entries.extend(position.map(|position| Entry {
                key: "providers".into(),
                position,
                value: Value { node: Node::Table(providers), position },
            }));
        }
    }
    entries
}

/// Moves the keys of `rate_limits` to the provider that they belong to.
fn with_rate_limits(mut provider: Value<'_>) -> Value<'_> {
    let Node::Table(entries) = &mut provider.node else { return provider };
    for entry in std::mem::take(entries) {
        match entry.value.node {
            Node::Table(limits) if entry.key == "rate_limits" => entries.extend(limits),
            _ => entries.push(entry),
        }
    }
    provider
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of the text as JSON, or the first error with its byte offset.
    fn read(text: &str) -> Result<String, (String, usize)> {
        let mut violations = Vec::new();
        let value = parse(text, Source::File, &mut violations);
        match violations.first() {
            Some(one) => Err((one.rule.to_string(), one.position.at.unwrap())),
            None => Ok(value.json().to_string()),
        }
    }

    #[test]
    fn scalars_follow_the_core_schema() {
        for (text, json) in [
            ("1000", "1000"),
            ("0x10", "16"),
            ("0o17", "15"),
            ("-3", "-3"),
            ("1.5", "1.5"),
            ("1e3", "1000.0"),
            ("true", "true"),
            ("False", "false"),
            ("~", "null"),
            ("yes", "\"yes\""),
            ("'1000'", "\"1000\""),
            ("4_000_000", "\"4_000_000\""),
            ("127.0.0.1:8080", "\"127.0.0.1:8080\""),
            ("+", "\"+\""),
            ("[a, 'b']", "[\"a\",\"b\"]"),
        ] {
            assert_eq!(read(&format!("a: {text}\n")).unwrap(), format!("{{\"a\":{json}}}"));
        }
        assert_eq!(read("").unwrap(), "{}");
        assert_eq!(read("# a comment\n").unwrap(), "{}");
    }

    #[test]
    fn features_that_configurations_do_not_need_are_rejected() {
        for (text, what, at) in [
            ("a: &x 1\nb: *x\n", "an anchor (&)", 3),
            ("a: !!str 1\n", "a tag (!)", 3),
            ("a: 1\n---\nb: 2\n", "a second document (---)", 5),
            ("? [a]\n: 1\n", "a key that is not a string", 2),
        ] {
            let (rule, found) = read(text).unwrap_err();
            assert_eq!(rule, format!("{what} cannot be used in a configuration"), "{text}");
            assert!(found >= at && found <= at + 3, "{text}: {found}");
        }
        for depth in [MAX_DEPTH, 1_000] {
            let (rule, _) = read(&format!("a: {}", "[".repeat(depth))).unwrap_err();
            assert_eq!(rule, "is nested too deeply: use at most 32 levels", "{depth}");
        }
        assert!(read("a: [1\nb: 2\n").is_err());
    }

    #[test]
    fn positions_are_byte_offsets() {
        let mut violations = Vec::new();
        let text = "# ä\nlimits: {}\n";
        let top = parse(text, Source::File, &mut violations);
        let Node::Table(entries) = &top.node else { panic!("a table") };
        assert_eq!(entries[0].position.at, text.find("limits"));
    }
}
