//! Parses TOML text into values with positions.
//!
//! All syntax errors are found in one pass, and the rest of the file is still read, so that a
//! missing quote does not hide an invalid limit.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::values::setting::{Position, Source};
use crate::values::value::{Entry, Node, Number, Value};
use crate::violation::{Rule, Violation};

/// Parses TOML text as far as possible and returns its top-level table. Syntax errors are added to
/// `violations`.
pub(crate) fn parse<'i>(
    text: &'i str,
    source: Source,
    violations: &mut Vec<Violation>,
) -> Value<'i> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let position = |at| Position { source, at };
    violations.extend(errors.into_iter().map(|error| Violation {
        key: String::new(),
        value: None,
        position: position(error.span().map(|span| span.start)),
        rule: Rule::Syntax(error.message().to_owned()),
    }));
    let at = table.span().start;
    Value { node: Node::Table(entries(table.into_inner(), source)), position: position(Some(at)) }
}

fn entries(table: DeTable<'_>, source: Source) -> Vec<Entry<'_>> {
    let mut entries: Vec<_> = table
        .into_iter()
        .map(|(key, item)| Entry {
            position: Position { source, at: Some(key.span().start) },
            key: key.into_inner(),
            value: value(item, source),
        })
        .collect();
    // The parser sorts by name, but errors are reported in text order.
    entries.sort_by_key(|entry| entry.position);
    entries
}

fn value(item: Spanned<DeValue<'_>>, source: Source) -> Value<'_> {
    let position = Position { source, at: Some(item.span().start) };
    let node = match item.into_inner() {
        DeValue::String(text) => Node::Text(text),
        DeValue::Integer(integer) => Node::Number(whole(&integer)),
        DeValue::Float(float) => {
            Node::Number(Number::Float(float.as_str().parse().unwrap_or(f64::NAN)))
        }
        DeValue::Boolean(bool) => Node::Bool(bool),
        DeValue::Datetime(date) => Node::Text(Cow::Owned(date.to_string())),
        DeValue::Array(items) => {
            Node::List(items.into_iter().map(|item| value(item, source)).collect())
        }
        DeValue::Table(table) => Node::Table(entries(table, source)),
    };
    Value { node, position }
}

fn whole(integer: &DeInteger<'_>) -> Number {
    let (digits, radix) = (integer.as_str(), integer.radix());
    if let Ok(whole) = u64::from_str_radix(digits, radix) {
        return Number::Whole(whole);
    }
    if let Ok(whole) = i64::from_str_radix(digits, radix) {
        return Number::Negative(whole);
    }
    // Does not fit 64 bits. A float keeps sign and magnitude, and every integer rule rejects it.
    Number::Float(digits.parse().unwrap_or(f64::NAN))
}
