//! Formatting shared by the tables of all benchmarks.

use crate::measure::Figure;

/// Formats a median with its range.
pub(crate) fn cell(figure: &Figure) -> String {
    let Figure { median, min, max, disturbed } = figure;
    let shared = match disturbed {
        0 => String::new(),
        runs => format!(" ({runs} disturbed)"),
    };
    format!("{median:.1} [{min:.1} .. {max:.1}]{shared}")
}

/// Formats a round number, such as `1 M`.
pub(crate) fn count(keys: usize) -> String {
    match keys {
        1_000_000.. => format!("{} M", keys / 1_000_000),
        1_000.. => format!("{} k", keys / 1_000),
        _ => keys.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_counts_are_short() {
        let figure = Figure { median: 12.34, min: 1.0, max: 99.96, disturbed: 0 };
        assert_eq!(cell(&figure), "12.3 [1.0 .. 100.0]");
        assert_eq!(cell(&Figure { disturbed: 2, ..figure }), "12.3 [1.0 .. 100.0] (2 disturbed)");
        assert_eq!([999, 20_000, 5_000_000].map(count), ["999", "20 k", "5 M"]);
    }
}
