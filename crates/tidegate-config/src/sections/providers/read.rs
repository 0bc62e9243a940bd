//! Parsers for single values of a provider's section.

use std::time::Duration;

use tidegate_http::host::HostPort;
use tidegate_llm::plan::{Constraint, RawConstraint};
use tidegate_providers::{Dialect, Provider};

use super::keys::DIALECTS;
use crate::values::value::{Node, Number, Value};
use crate::violation::Rule;

/// Maximum number of retries. The database schema enforces it too.
pub(crate) const MAX_RETRIES: u32 = 20;

/// First path segments that the HTTP and admin APIs use themselves, so no provider can have them.
const RESERVED_NAMES: [&str; 8] =
    ["v1", "admin", "json", "config", "metrics", "llm", "healthz", "readyz"];

/// Checks the name of a provider.
pub(crate) fn check_provider_name(name: &str) -> Result<(), Rule> {
    if RESERVED_NAMES.contains(&name) {
        return Err(Rule::ReservedName);
    }
    check_name_syntax(name)
}

/// Checks the syntax of a provider or endpoint name.
pub(crate) fn check_name_syntax(name: &str) -> Result<(), Rule> {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    let starts_with_letter = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let is_valid = starts_with_letter && name.len() <= 64 && name.bytes().all(is_allowed);
    if is_valid { Ok(()) } else { Err(Rule::Name) }
}

/// Parses a base URL and removes trailing slashes.
pub(crate) fn base_url(value: &Value<'_>) -> Result<String, Rule> {
    const MAX_LENGTH: usize = 2_048;
    let text = value.to_text().map_err(|_| Rule::BaseUrl)?;
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let rest = rest.filter(|_| text.len() <= MAX_LENGTH).ok_or(Rule::BaseUrl)?;
    let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"?#@\\".contains(&byte);
    if HostPort::parse(server).is_err() || !path.bytes().all(is_allowed) {
        return Err(Rule::BaseUrl);
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Parses the name of an environment variable. An API key given here by mistake either has
/// characters that are not allowed or is not found in the environment; no error shows it.
pub(crate) fn variable_name(value: &Value<'_>) -> Result<String, Rule> {
    let text = value.to_text().map_err(|_| Rule::VariableName)?;
    let is_allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let starts_without_digit = text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    let is_valid = starts_without_digit && text.len() <= 128 && text.bytes().all(is_allowed);
    if is_valid { Ok(text.to_owned()) } else { Err(Rule::VariableName) }
}

/// Parses a dialect and returns it with the provider of that name.
pub(crate) fn dialect(value: &Value<'_>) -> Result<(Dialect, Provider), Rule> {
    let word = value.to_text().ok().filter(|word| DIALECTS.contains(word));
    let provider = Provider::new(word.ok_or(Rule::NotOneOf(DIALECTS))?);
    Ok((Dialect::of(&provider), provider))
}

pub(crate) fn retries(value: &Value<'_>) -> Result<u32, Rule> {
    let max = MAX_RETRIES.into();
    let retries = value.to_whole_between(0, max)?;
    u32::try_from(retries).map_err(|_| Rule::NotBetween { min: 0, max })
}

pub(crate) fn interval(value: &Value<'_>) -> Result<Duration, Rule> {
    value.to_whole_between(0, 86_400_000).map(Duration::from_millis)
}

/// Parses a burst factor. Its bounds are checked by the constraint.
pub(crate) fn factor(value: &Value<'_>) -> Result<f64, Rule> {
    match value.node {
        Node::Number(Number::Float(float)) => Ok(float),
        // Any factor above 32 bits is rejected later.
        Node::Number(number) => {
            let whole = number.whole().and_then(|whole| u32::try_from(whole).ok());
            Ok(whole.map_or(f64::INFINITY, f64::from))
        }
        _ => Err(Rule::NotNumber),
    }
}

/// Checks the bounds of a burst factor.
pub(crate) fn check_factor(value: &Value<'_>) -> Result<(), Rule> {
    let raw = RawConstraint { burst_factor: Some(factor(value)?), ..RawConstraint::default() };
    Constraint::try_new(&raw)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialect_names_match_provider_names() {
        for word in DIALECTS {
            let (dialect, _) = dialect(&Value::text(*word)).unwrap();
            assert_eq!(dialect == Dialect::Compatible, *word == "compatible", "{word}");
        }
        assert!(dialect(&Value::text("OpenAI")).is_err());
    }

    #[test]
    fn base_url_has_neither_user_nor_query() {
        for (text, read) in [
            ("https://api.openai.com", "https://api.openai.com"),
            ("http://127.0.0.1:11434/", "http://127.0.0.1:11434"),
            ("https://[::1]:8443/v1/", "https://[::1]:8443/v1"),
        ] {
            assert_eq!(base_url(&Value::text(text)).unwrap(), read);
        }
        for text in [
            "api.openai.com",
            "ftp://host",
            "https://",
            "https://user:secret@host",
            "https://host/?key=1",
            "https://host/#x",
            "https://host:0",
            "https://ho st",
        ] {
            assert!(base_url(&Value::text(text)).is_err(), "{text}");
        }
    }
}
