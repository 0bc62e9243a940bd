//! Usage of a response so far: the last report of the provider plus text received since.
//!
//! Some providers report usage with every event, some at the start and the end, some at the end if
//! asked to, some never. Text received after the last report is counted, so that an interrupted or
//! unreported response is not free.

use tidegate_providers::Usage;

use super::text_counter::TextCounter;

/// Usage of a response so far.
#[derive(Debug, Default)]
pub(crate) struct UsageSoFar {
    reported: Option<Usage>,
    /// Output received after the last report.
    since: TextCounter,
    /// Unreadable output since then, in tokens.
    unread: u64,
    /// Output tokens that the last report covers. A count from before any output is a placeholder,
    /// as Anthropic's, and covers nothing.
    covered: u64,
    has_output: bool,
}

impl UsageSoFar {
    pub(crate) fn add_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.has_output = true;
            self.since.add(text);
        }
    }

    pub(crate) fn add_unread(&mut self, tokens: u64) {
        self.has_output |= tokens > 0;
        self.unread = self.unread.saturating_add(tokens);
    }

    pub(crate) fn set_reported(&mut self, usage: Usage) {
        self.reported = Some(usage);
        if usage.output > 0 && self.has_output {
            self.covered = usage.output;
            self.since.clear();
            self.unread = 0;
        }
    }

    /// Sets the final usage, which may have been reported already.
    pub(crate) fn set_final(&mut self, usage: Usage) {
        if self.reported != Some(usage) {
            self.set_reported(usage);
        }
    }

    /// Returns the usage, with `expected_input` if the provider did not report input.
    pub(crate) fn usage(&self, expected_input: u64) -> Usage {
        // No response uses zero tokens: a provider that says so has not counted.
        let reported = self.reported.filter(|reported| reported.total() > 0);
        let usage = reported.unwrap_or_default();
        let since = self.since.total().saturating_add(self.unread);
        let output = match since {
            0 => usage.output,
            since => self.covered.saturating_add(since).max(usage.output),
        };
        let input = if usage.input > 0 { usage.input } else { expected_input };
        Usage {
            input,
            output,
            is_input_estimated: usage.input == 0,
            is_output_estimated: reported.is_none() || since > 0,
            ..usage
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, output: u64) -> Usage {
        tidegate_providers::tokens::prepare();
        Usage { input, output, ..Usage::default() }
    }

    fn measured(so_far: &UsageSoFar) -> (u64, &'static str, u64, &'static str) {
        let measured = so_far.usage(40);
        let Usage { input, output, .. } = measured;
        (input, measured.input_source(), output, measured.output_source())
    }

    #[test]
    fn unreported_usage_is_counted_and_marked_as_estimated() {
        tidegate_providers::tokens::prepare();
        let mut so_far = UsageSoFar::default();
        assert_eq!(measured(&so_far), (40, "estimated", 0, "estimated"));
        so_far.add_text("one two three four");
        let (_, _, output, source) = measured(&so_far);
        assert!((4..=5).contains(&output) && source == "estimated", "{output} {source}");
        so_far.set_reported(usage(7, 4));
        assert_eq!(measured(&so_far), (7, "reported", 4, "reported"));
    }

    #[test]
    fn initial_count_does_not_cover_later_output() {
        let mut so_far = UsageSoFar::default();
        so_far.set_reported(usage(7, 1));
        assert_eq!(measured(&so_far), (7, "reported", 1, "reported"));
        so_far.add_text("one two three four");
        so_far.set_final(usage(7, 1));
        let (input, input_source, output, source) = measured(&so_far);
        assert_eq!((input, input_source, source), (7, "reported", "estimated"));
        assert!((4..=5).contains(&output), "{output}");
    }

    #[test]
    fn count_with_every_event_covers_earlier_output() {
        let mut so_far = UsageSoFar::default();
        so_far.add_text(&"word ".repeat(10));
        so_far.set_reported(usage(7, 30));
        so_far.add_unread(5);
        assert_eq!(measured(&so_far), (7, "reported", 35, "estimated"));
    }

    #[test]
    fn zero_count_is_ignored() {
        let mut so_far = UsageSoFar::default();
        so_far.add_text("one two three four");
        so_far.set_reported(usage(0, 0));
        let (input, _, output, source) = measured(&so_far);
        assert!(input == 40 && output > 0 && source == "estimated");
        let mut vectors = UsageSoFar::default();
        vectors.set_reported(usage(8, 0));
        assert_eq!(measured(&vectors), (8, "reported", 0, "reported"));
    }
}
