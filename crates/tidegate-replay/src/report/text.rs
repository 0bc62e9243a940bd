//! Numbers, durations and keys as text.

use std::fmt::Write as _;

/// Longer keys are cut off in tables and plots.
const MAX_KEY_CHARS: usize = 60;

/// Formats milliseconds for people: `250 ms`, `1.5 s`, `12 min 5 s`, `3 h 7 min`, `2 days 4 h`.
pub(super) fn duration(millis: u64) -> String {
    let seconds = millis / 1_000;
    let two = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    };
    match seconds {
        0 => format!("{millis} ms"),
        1..60 if millis.is_multiple_of(1_000) => format!("{seconds} s"),
        1..60 => {
            let decimals = format!("{:03}", millis % 1_000);
            format!("{seconds}.{} s", decimals.trim_end_matches('0'))
        }
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "days", seconds / 3_600 % 24, "h"),
    }
}

/// Formats a share in percent.
pub(super) fn share(percent: f64) -> String {
    format!("{percent:.3} %")
}

/// Returns a key for a terminal: cut off, without control characters, which could do more than
/// print. An empty key is shown as two quotes.
pub(super) fn key(text: &str) -> String {
    let mut shown = String::new();
    for char in text.chars().take(MAX_KEY_CHARS) {
        if char.is_control() || is_invisible(char) {
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(char));
        } else {
            shown.push(char);
        }
    }
    if text.chars().nth(MAX_KEY_CHARS).is_some() {
        shown.push_str("...");
    }
    if shown.is_empty() { "\"\"".to_owned() } else { shown }
}

/// Returns whether a character changes the direction of a text, or shows nothing.
fn is_invisible(char: char) -> bool {
    matches!(char, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (millis, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_500, "1.5 s"),
            (60_000, "1 min"),
            (725_000, "12 min 5 s"),
            (11_220_000, "3 h 7 min"),
            (187_200_000, "2 days 4 h"),
        ] {
            assert_eq!(duration(millis), text);
        }
    }

    #[test]
    fn keys_cannot_control_a_terminal() {
        assert_eq!(key("a\u{1b}[2J\nb\u{202e}"), "a\\u{1b}[2J\\u{a}b\\u{202e}");
        assert_eq!(key(""), "\"\"");
        assert_eq!(key(&"ä".repeat(61)), format!("{}...", "ä".repeat(60)));
        assert_eq!(key(&"ä".repeat(60)), "ä".repeat(60));
    }
}
