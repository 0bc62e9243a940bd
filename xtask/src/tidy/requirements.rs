//! Checks docs/requirements.md: every requirement is there once and in order, and names the tests
//! that hold it, or says why there are none.

use std::collections::BTreeMap;

use super::setting_tests::test_below;
use super::{Findings, TextFile};

const PAGE: &str = "docs/requirements.md";

/// Kinds of requirements and how many there are: R1 to R437, G1 to G16.
const NUMBERED: &[(char, u32)] = &[('R', 437), ('G', 16)];

/// The conformance suite, whose cases are functions without `#[test]`.
const SUITE: &str = "crates/tidegate-testkit/src/conformance";
const SUITE_MACRO: &str = "conformance_tests!";

const DECISION: &str = "**Decision:** ";
const OPEN: &str = "**Open:** ";

/// A row of the page.
#[derive(Debug)]
struct Row<'p> {
    /// File and line.
    place: String,
    number: &'p str,
    requirement: &'p str,
    held_by: Vec<&'p str>,
}

/// A Markdown link.
#[derive(Debug, PartialEq, Eq)]
struct Link<'p> {
    text: &'p str,
    path: &'p str,
    anchor: Option<&'p str>,
}

/// Checks the page against the files of the repository.
pub(super) fn check(files: &[TextFile], findings: &mut Findings) {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        findings.error(PAGE, "does not exist");
        return;
    };
    let by_path = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let rows: Vec<Row<'_>> = rows(&page.text).collect();
    check_numbers(&rows, NUMBERED, findings);
    for row in &rows {
        check_row(row, &by_path, findings);
    }
    let open: Vec<&str> = rows.iter().filter(|row| row.is_open()).map(|row| row.number).collect();
    if !open.is_empty() {
        findings.note(PAGE, format!("{} open: {}", open.len(), open.join(", ")));
    }
}

impl Row<'_> {
    fn is_open(&self) -> bool {
        self.held_by.iter().any(|part| part.starts_with(OPEN))
    }
}

/// The rows of all tables whose first column is a number.
fn rows(page: &str) -> impl Iterator<Item = Row<'_>> {
    (1..).zip(page.lines()).filter_map(|(line, text)| {
        let cells = text.strip_prefix("| ")?.strip_suffix(" |")?;
        let mut cells = cells.splitn(3, " | ");
        let (number, requirement) = (cells.next()?, cells.next().unwrap_or_default());
        let is_heading = number == "No." || number.starts_with("---");
        (!is_heading).then(|| Row {
            place: format!("{PAGE}:{line}"),
            number,
            requirement,
            held_by: cells.next().unwrap_or_default().split("<br>").collect(),
        })
    })
}

/// Checks that every number is there exactly once, and in order.
fn check_numbers(rows: &[Row<'_>], numbered: &[(char, u32)], findings: &mut Findings) {
    let of_kind = |&(kind, last): &(char, u32)| (1..=last).map(move |n| format!("{kind}{n}"));
    let expected: Vec<String> = numbered.iter().flat_map(of_kind).collect();
    let mut last = None;
    for row in rows {
        match expected.iter().position(|number| number == row.number) {
            None => findings.error(&row.place, format!("`{}` is not a requirement", row.number)),
            place if place <= last => {
                findings
                    .error(&row.place, format!("{} is there twice, or not in order", row.number));
            }
            place => last = place,
        }
    }
    for number in &expected {
        if rows.iter().all(|row| row.number != number) {
            findings.error(
                PAGE,
                format!("{number} is missing. Name the test that holds it, or decide against it"),
            );
        }
    }
}

/// Checks that a row says what is required, and that all it refers to exists.
fn check_row(row: &Row<'_>, files: &BTreeMap<&str, &str>, findings: &mut Findings) {
    let mut error = |message: String| findings.error(&row.place, message);
    if row.requirement.is_empty() {
        error(format!("{} does not say what is required", row.number));
    }
    for part in &row.held_by {
        let reason = part.strip_prefix(DECISION).or_else(|| part.strip_prefix(OPEN));
        let mistake = match reason {
            Some("") => Some("a decision needs a reason".to_owned()),
            Some(reason) => links(reason).iter().find_map(|link| mistake_of_link(link, files)),
            None => match links(part).as_slice() {
                [test] if part.starts_with('[') && part.ends_with(')') => {
                    mistake_of_test(test, files)
                }
                _ => Some(format!(
                    "`{part}` is neither [`test`](../file), nor {DECISION}reason, nor {OPEN}reason"
                )),
            },
        };
        if let Some(mistake) = mistake {
            error(format!("{}: {mistake}", row.number));
        }
    }
}

fn mistake_of_test(link: &Link<'_>, files: &BTreeMap<&str, &str>) -> Option<String> {
    let Some(text) = files.get(link.path) else {
        return Some(format!("there is no file {}", link.path));
    };
    let name = link.text.strip_prefix('`').and_then(|text| text.strip_suffix('`'));
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Some(format!("`{}` is not the name of a test in backquotes", link.text));
    };
    let is_test = match link.path {
        _ if name == SUITE_MACRO => text.contains(&format!("{SUITE_MACRO}(")),
        path if path.starts_with(&format!("{SUITE}/")) => {
            let suite = files.get(format!("{SUITE}.rs").as_str()).unwrap_or(&"");
            text.contains(&format!("pub async fn {name}("))
                && suite.lines().any(|line| line.trim().trim_end_matches(';') == name)
        }
        path if path.ends_with(".rs") => has_rust_test(text, name),
        _ => has_node_test(text, name),
    };
    (!is_test).then(|| format!("{} has no test `{name}`", link.path))
}

fn has_rust_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let attributes = (0..lines.len()).filter(|index| lines[*index].starts_with("#["));
    attributes.filter_map(|index| test_below(&lines[index..])).any(|found| found == name)
}

fn has_node_test(text: &str, name: &str) -> bool {
    let call = |function, quote| text.contains(&format!("{function}({quote}{name}{quote}"));
    ["test", "describe"].iter().any(|function| ['"', '`'].iter().any(|quote| call(function, quote)))
}

fn mistake_of_link(link: &Link<'_>, files: &BTreeMap<&str, &str>) -> Option<String> {
    let Some(text) = files.get(link.path) else {
        return Some(format!("there is no file {}", link.path));
    };
    let anchor = link.anchor?;
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let found = headings.map(|line| anchor_of(line.trim_start_matches('#'))).any(|it| it == anchor);
    (!found).then(|| format!("{} has no heading with the anchor {anchor}", link.path))
}

/// The anchor that a heading gets when it is rendered.
fn anchor_of(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The links of a text, with their paths relative to the root of the repository.
fn links(text: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    for (before, after) in text.match_indices("](").map(|(at, _)| (&text[..at], &text[at + 2..])) {
        let Some((target, _)) = after.split_once(')') else { continue };
        let Some((_, text)) = before.rsplit_once('[') else { continue };
        let (path, anchor) = match target.split_once('#') {
            Some((path, anchor)) => (path, Some(anchor)),
            None => (target, None),
        };
        links.push(Link { text, path: path.strip_prefix("../").unwrap_or(path), anchor });
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors of a row that is held by this.
    fn errors(held_by: &str) -> Vec<String> {
        let files = [
            ("a.rs", "/// Why.\n#[test]\nfn it_holds() {}\n\nfn helper() {}\n"),
            ("b.rs", "mod conformance {\n    testkit::conformance_tests!(|| store());\n}\n"),
            (
                "c.test.ts",
                "test(\"it holds, too\", () => {});\ndescribe(`all of ${it}`, () => {});\n",
            ),
            ("D.md", "# D\n\n### Why not `b`, and c?\n"),
            (
                "crates/tidegate-testkit/src/conformance.rs",
                "    basics {\n        is_empty;\n        is_full\n    }\n",
            ),
            (
                "crates/tidegate-testkit/src/conformance/basics.rs",
                "pub async fn is_empty() {}\npub async fn is_full() {}\npub async fn is_left_out() {}\n",
            ),
        ];
        let page = format!("| R1 | It limits | {held_by} |\n");
        let mut findings = Findings::default();
        let rows: Vec<Row<'_>> = rows(&page).collect();
        check_row(&rows[0], &files.into_iter().collect(), &mut findings);
        findings.errors
    }

    fn assert_error(held_by: &str, expected: &str) {
        let found = errors(held_by);
        assert!(found.len() == 1 && found[0].contains(expected), "{held_by}: {found:?}");
    }

    #[test]
    fn a_test_exists_in_its_file() {
        for held_by in [
            "[`it_holds`](../a.rs)",
            "[`it_holds`](../a.rs)<br>[`it holds, too`](../c.test.ts)",
            "[`all of ${it}`](../c.test.ts)",
            "[`conformance_tests!`](../b.rs)",
            "[`is_full`](../crates/tidegate-testkit/src/conformance/basics.rs)",
        ] {
            assert_eq!(errors(held_by), [""; 0], "{held_by}");
        }
        assert_error("[`it_holds`](../z.rs)", "docs/requirements.md:1: R1: there is no file z.rs");
        assert_error("[`helper`](../a.rs)", "a.rs has no test `helper`");
        assert_error("[`it_hold`](../a.rs)", "has no test");
        assert_error("[`it holds`](../c.test.ts)", "has no test");
        assert_error("[`conformance_tests!`](../a.rs)", "has no test");
        let suite = "../crates/tidegate-testkit/src/conformance/basics.rs";
        assert_error(&format!("[`is_left_out`]({suite})"), "has no test `is_left_out`");
        assert_error("[it_holds](../a.rs)", "is not the name of a test");
    }

    #[test]
    fn what_has_no_test_has_a_reason() {
        for held_by in [
            "**Decision:** out of scope",
            "**Decision:** [D](../D.md#why-not-b-and-c)",
            "[`it_holds`](../a.rs)<br>**Decision:** in another way: [D](../D.md)",
            "**Open:** not measured",
        ] {
            assert_eq!(errors(held_by), [""; 0], "{held_by}");
        }
        for held_by in
            ["", "**Decision:**", "**Open:**", "out of scope", "see [`it_holds`](../a.rs)"]
        {
            assert_error(held_by, "is neither");
        }
        assert_error("**Decision:** [E](../E.md)", "there is no file E.md");
        assert_error("**Decision:** [D](../D.md#why)", "no heading with the anchor why");
    }

    #[test]
    fn every_number_is_there_once_and_in_order() {
        let errors = |numbers: &[&str]| {
            let page: String = numbers.iter().map(|n| format!("| {n} | x | y |\n")).collect();
            let mut findings = Findings::default();
            let rows: Vec<Row<'_>> = rows(&page).collect();
            check_numbers(&rows, &[('R', 3), ('G', 1)], &mut findings);
            findings.errors
        };
        assert_eq!(errors(&["No.", "---", "R1", "R2", "No.", "---", "R3", "G1"]), [""; 0]);
        for (numbers, expected) in [
            (&["R1", "R3", "G1"][..], "docs/requirements.md: R2 is missing"),
            (&["R1", "R2", "R2", "R3", "G1"], "docs/requirements.md:3: R2 is there twice"),
            (
                &["R1", "R3", "R2", "G1"],
                "docs/requirements.md:3: R2 is there twice, or not in order",
            ),
            (&["R1", "R2", "R3", "R1", "G1"], "docs/requirements.md:4: R1 is there twice"),
            (&["R1", "R2", "R3", "R4", "G1"], "docs/requirements.md:4: `R4` is not a requirement"),
        ] {
            let found = errors(numbers);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{numbers:?}: {found:?}");
        }
    }

    #[test]
    fn open_requirements_are_noted() {
        let page = "| R1 | x | **Open:** not measured |\n| R2 | x | **Decision:** no |\n";
        let mut findings = Findings::default();
        check(&[TextFile { path: PAGE.into(), text: page.into() }], &mut findings);
        assert_eq!(findings.notes, ["docs/requirements.md: 1 open: R1"]);
        let mut findings = Findings::default();
        check(&[], &mut findings);
        assert_eq!(findings.errors, ["docs/requirements.md: does not exist"]);
    }
}
