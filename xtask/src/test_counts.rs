//! Counts tests from the output of the test harness.

use std::fmt;

/// Numbers of tests. An ignored test did not run and counts as failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestCounts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl TestCounts {
    /// Adds the numbers of a line such as
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...`; ignores other lines.
    pub(crate) fn parse_line(&mut self, line: &str) {
        let Some((_, counts)) = line
            .split_once("test result: ")
            .and_then(|(before, rest)| before.trim().is_empty().then_some(rest))
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split(';') {
            let mut words = count.split_whitespace();
            let number = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            match words.next() {
                Some("passed") => self.passed += number,
                Some("failed") => self.failed += number,
                Some("ignored") => self.ignored += number,
                _ => {}
            }
        }
    }

    /// Adds the number of a line in the summary of Node's test runner, such as `# pass 3`; ignores
    /// other lines. Depending on the version of Node, the lines start with another sign.
    pub(crate) fn parse_node(&mut self, line: &str) {
        let Some(count) = line.strip_prefix("# ").or_else(|| line.strip_prefix("\u{2139} ")) else {
            return;
        };
        let Some((kind, number)) = count.split_once(' ') else { return };
        let Ok(number) = number.trim().parse::<u64>() else { return };
        match kind {
            "pass" => self.passed += number,
            "fail" | "cancelled" => self.failed += number,
            "skipped" | "todo" => self.ignored += number,
            _ => {}
        }
    }

    /// Adds the numbers of another step.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Number of tests that failed or did not run.
    pub(crate) const fn not_passed(&self) -> u64 {
        self.failed + self.ignored
    }
}

impl fmt::Display for TestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.not_passed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed_and_other_lines_ignored() {
        let mut counts = TestCounts::default();
        counts.parse_line("running 3 tests");
        counts.parse_line("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.00s");
        counts.parse_line("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        counts.parse_line("he said: test result: ok. 7 passed; 0 failed");
        assert_eq!(counts, TestCounts { passed: 4, failed: 2, ignored: 0 });
        assert_eq!(counts.to_string(), "4 passed, 2 failed");
    }

    #[test]
    fn the_summary_of_node_is_counted() {
        let mut counts = TestCounts::default();
        for line in [
            "ok 1 - takes",
            "    # pass 9",
            "# passing 7",
            "# tests 6",
            "# pass 2",
            "# fail 1",
            "# cancelled 1",
            "# skipped 1",
            "# todo 1",
            "# duration_ms 12.5",
            "\u{2139} pass 3",
        ] {
            counts.parse_node(line);
        }
        assert_eq!(counts, TestCounts { passed: 5, failed: 2, ignored: 2 });
    }

    #[test]
    fn ignored_tests_count_as_failed() {
        let mut counts = TestCounts::default();
        counts.parse_line(
            "test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out",
        );
        assert_eq!(counts.to_string(), "1 passed, 1 failed");
    }
}
