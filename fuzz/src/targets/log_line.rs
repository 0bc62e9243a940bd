//! Lines of traffic logs: access logs, JSON lines and CSV.

use serde_json::Value;
use tidegate_replay::{LogFormat, LogOptions, parse_line};

/// Nanoseconds since 1970 of the year 2262.
const END: u64 = 9_223_372_036_000_000_000;

/// A line, in all three formats, with the usual fields and with others. A value in valid JSON is
/// read as a JSON parser reads it.
pub(super) fn log_line(bytes: &[u8]) {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let named = |key: &str| LogOptions { key: Some(key.to_owned()), ..LogOptions::default() };
    let bytes_cost = LogOptions { cost_field: Some("bytes".to_owned()), ..named("path") };
    let options = [LogOptions::default(), named("user"), named("path"), named("x.y"), bytes_cost];
    for format in [LogFormat::Combined, LogFormat::Json, LogFormat::Csv] {
        for options in &options {
            match parse_line(format, options, line) {
                Ok((_, time, _)) => assert!(time < END, "{time}"),
                Err(error) => assert!(!error.is_empty()),
            }
        }
    }
    compare(line);
}

/// Compares keys with those that a JSON parser finds, if the line is valid JSON.
fn compare(line: &[u8]) {
    // Escaped names are not compared, and do not match here.
    let is_plain = !line.windows(2).any(|pair| pair[0] == b'\\' && pair[1] == b'u');
    let Ok(Value::Object(object)) = serde_json::from_slice(line) else { return };
    let options = LogOptions { key: Some("key".to_owned()), ..LogOptions::default() };
    let found = parse_line(LogFormat::Json, &options, line);
    if let (Some(Value::String(key)), Ok((found, ..)), true) = (object.get("key"), &found, is_plain)
    {
        assert_eq!(String::from_utf8_lossy(found), *key);
    }
    if !object.contains_key("key") {
        assert!(found.is_err(), "{found:?}");
    }
}
