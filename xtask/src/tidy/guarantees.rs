//! Checks the numbers in the table of guarantees against the code.
//!
//! Every number in the table "What is guaranteed" of README.md either comes from a constant, which
//! is read from the source text and compared, or is listed here with the reason why it has none.

use super::scrub::production_code;
use super::{Findings, TextFile};

const DOCUMENT: &str = "README.md";
const HEADING: &str = "## What is guaranteed";
/// Path of this file, for messages.
const RULE: &str = "xtask/src/tidy/guarantees.rs";

/// A Julian year in milliseconds.
const YEAR: u128 = 31_557_600_000;
const MEBIBYTE: u128 = 1 << 20;

/// A number in the table with the constant that it comes from.
struct Number {
    /// The text in the table, with `{}` for the number.
    pattern: &'static str,
    package: &'static str,
    constant: &'static str,
    /// Units of the constant per unit in the table.
    unit: u128,
}

const NUMBERS: &[Number] = &[
    number("up to {} charges in a list", "tidegate-core", "MAX_CHARGES", 1),
    number("horizon together at most {} years", "tidegate-core", "MAX_SPAN", YEAR),
    number("`max_memory`, {} MiB by default", "tidegate-memory", "DEFAULT_MEMORY", MEBIBYTE),
    number("`gateway.max_memory`, {} MiB by default", "tidegate-gateway", "MAX_MEMORY", MEBIBYTE),
    number("new keys share {} buckets per limit", "tidegate-memory", "BUCKETS", 1),
    number("at most {} ms, or", "tidegate", "DEFAULT_TIMEOUT", 1),
    number("probability 2^-{} per pair", "tidegate-memory", "FINGERPRINT_BITS", 1),
];

/// Numbers without a constant.
const WITHOUT_CONSTANT: &[&str] = &[
    // The tokens of a rate are a `u32`.
    "2^32 - 1 tokens",
    // The base of the probability, without its exponent, which is compared.
    "2^- per pair",
];

const fn number(
    pattern: &'static str,
    package: &'static str,
    constant: &'static str,
    unit: u128,
) -> Number {
    Number { pattern, package, constant, unit }
}

/// Checks the table against the constants.
pub(super) fn check(files: &[TextFile], findings: &mut Findings) {
    let document = files.iter().find(|file| file.path == DOCUMENT);
    let table = document.map_or_else(Vec::new, |file| table(&file.text));
    if table.is_empty() {
        findings.error(DOCUMENT, format!("has no table below \"{HEADING}\""));
        return;
    }
    check_table(&table, (NUMBERS, WITHOUT_CONSTANT), files, findings);
}

fn check_table(
    table: &[(usize, &str)],
    (numbers, without_constant): (&[Number], &[&str]),
    files: &[TextFile],
    findings: &mut Findings,
) {
    let mut rows: Vec<(usize, String)> =
        table.iter().map(|(line, row)| (*line, (*row).to_owned())).collect();
    for number in numbers {
        let (before, after) = number.pattern.split_once("{}").unwrap_or((number.pattern, ""));
        let Some((line, found)) = rows.iter_mut().find_map(|(line, row)| {
            let start = row.find(before)? + before.len();
            let length = row[start..].find(after)?;
            let written = row[start..start + length].to_owned();
            row.replace_range(start..start + length, "");
            Some((*line, written))
        }) else {
            findings.error(RULE, format!("no row of the table has \"{}\"", number.pattern));
            continue;
        };
        let written = found.replace(',', "").parse::<u128>().ok();
        match value_of(number, files) {
            Err(message) => findings.error(RULE, message),
            Ok(value) if written.and_then(|it| it.checked_mul(number.unit)) == Some(value) => {}
            Ok(value) => findings.error(
                &format!("{DOCUMENT}:{line}"),
                format!(
                    "has {found}, but {} of {} is {value} / {}. Correct the wrong one",
                    number.constant, number.package, number.unit
                ),
            ),
        }
    }
    for known in without_constant {
        match rows.iter_mut().find_map(|(_, row)| row.find(known).map(|start| (start, row))) {
            Some((start, row)) => row.replace_range(start..start + known.len(), ""),
            None => findings.error(RULE, format!("no row of the table has \"{known}\"")),
        }
    }
    for (line, row) in rows.iter().filter(|(_, row)| row.contains(|c: char| c.is_ascii_digit())) {
        findings.error(
            &format!("{DOCUMENT}:{line}"),
            format!("a number is not checked against the code: {row}. Add it to {RULE}"),
        );
    }
}

/// The rows of the table, with their line numbers.
fn table(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines
        .skip_while(|(_, line)| *line != HEADING)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("## "))
        .filter(|(_, line)| line.starts_with('|'))
        .skip(2)
        .collect()
}

/// Evaluates the only constant of this name in the crate.
fn value_of(number: &Number, files: &[TextFile]) -> Result<u128, String> {
    let folder = format!("crates/{}/src/", number.package);
    let declaration = format!("const {}: ", number.constant);
    let code = files.iter().filter(|file| file.path.starts_with(&folder)).map(production_code);
    let code: Vec<String> = code.filter(|code| code.contains(&declaration)).collect();
    let [code] = code.as_slice() else {
        return Err(format!(
            "{} of {} is declared in {} files, expected one",
            number.constant,
            number.package,
            code.len()
        ));
    };
    let value = code.split_once(&declaration).and_then(|(_, rest)| rest.split_once('='));
    let value = value.and_then(|(_, rest)| rest.split_once(';')).map_or("", |(value, _)| value);
    evaluate(value).ok_or_else(|| {
        format!("cannot read `{}` of {} in {}", value.trim(), number.constant, number.package)
    })
}

/// Evaluates a number, a product, a shift, or a duration in milliseconds.
fn evaluate(expression: &str) -> Option<u128> {
    let expression = expression.trim();
    if let Some((left, right)) = expression.split_once("<<") {
        return evaluate(left)?.checked_shl(evaluate(right)?.try_into().ok()?);
    }
    if let Some((left, right)) = expression.split_once('*') {
        return evaluate(left)?.checked_mul(evaluate(right)?);
    }
    for (call, millis) in [("Duration::from_secs(", 1_000), ("Duration::from_millis(", 1)] {
        if let Some(inner) = expression.strip_prefix(call).and_then(|rest| rest.strip_suffix(')')) {
            return evaluate(inner)?.checked_mul(millis);
        }
    }
    expression.replace('_', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &[Number] = &[number("up to {} charges", "a", "MOST", 2)];

    /// Errors for a table with one row and one line of code.
    fn errors(row: &str, code: &str) -> Vec<String> {
        let file = TextFile { path: "crates/a/src/b.rs".into(), text: code.into() };
        let mut findings = Findings::default();
        check_table(&[(7, row)], (RULES, &["2^-64 per"]), &[file], &mut findings);
        findings.errors
    }

    #[test]
    fn a_number_is_that_of_its_constant() {
        let code = "pub const MOST: usize = 2_000;";
        assert!(errors("| a list | up to 1,000 charges, 2^-64 per pair |", code).is_empty());
        let found = errors("| a list | up to 1,001 charges, 2^-64 per pair |", code);
        assert!(found[0].starts_with("README.md:7: has 1,001"), "{found:?}");
        let found = errors("| a list | up to many charges, 2^-64 per pair |", code);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn every_number_is_covered_and_every_claim_is_found() {
        let code = "const MOST: usize = 32;";
        let found = errors("| a list | up to 16 charges, 2^-64 per pair, 3 times |", code);
        assert!(found.len() == 1 && found[0].contains("is not checked"), "{found:?}");
        let found = errors("| a list | as many as you like |", code);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_constant_is_declared_once_and_can_be_read() {
        let row = "| a list | up to 16 charges, 2^-64 per pair |";
        assert!(errors(row, "// const MOST: usize = 32;")[0].contains("declared in 0 files"));
        assert!(errors(row, "const MOST: usize = half(64);")[0].contains("cannot read `half(64)`"));
    }

    #[test]
    fn constants_are_numbers_shifts_products_and_durations() {
        for (text, value) in [
            ("4_096", Some(4_096)),
            (" 64 << 20", Some(64 << 20)),
            ("64 * 1_024", Some(65_536)),
            ("Duration::from_secs(3_600)", Some(3_600_000)),
            ("Duration::from_millis(50)", Some(50)),
            ("usize::MAX", None),
        ] {
            assert_eq!(evaluate(text), value, "{text}");
        }
    }

    #[test]
    fn the_table_is_the_one_below_its_heading() {
        let text = "| a |\n\n## What is guaranteed\n\n| p | b |\n| --- | --- |\n| x | 1 |\n\n\
                    ## More\n| y | 2 |\n";
        assert_eq!(table(text), [(7, "| x | 1 |")]);
    }
}
