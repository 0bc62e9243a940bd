//! Delays and limits in error messages, for providers that have no field for them.
//!
//! Messages never determine the class of an error.

use std::time::Duration;

use crate::reported_limits::{Dimension, LimitReading, delay};

/// Texts that precede a delay, in lower case.
const BEFORE_DELAY: [&str; 3] = ["try again in ", "retry in ", "retry after "];

/// Prefixes of unit names, and the abbreviations that `delay::span` parses.
const UNITS: [(&str, &str); 4] = [("milli", "ms"), ("sec", "s"), ("min", "m"), ("hour", "h")];

/// Abbreviation of a limit, its dimension and its window in seconds. Tokens per day have no
/// dimension.
const LIMITS: [(&str, Dimension, u64); 5] = [
    ("(RPM)", Dimension::Requests, 60),
    ("(RPD)", Dimension::RequestsPerDay, 86_400),
    ("(TPM)", Dimension::Tokens, 60),
    ("(ITPM)", Dimension::InputTokens, 60),
    ("(OTPM)", Dimension::OutputTokens, 60),
];

/// Parses the delay of a message such as `Please try again in 976ms.`, `Please retry after 37
/// seconds.` or `Please retry in 10.68s.`
pub(super) fn delay(message: &str) -> Option<Duration> {
    let message = message.to_ascii_lowercase();
    let after = BEFORE_DELAY.iter().find_map(|before| Some(message.split_once(before)?.1))?;
    let mut words = after.split_whitespace();
    let number = words.next()?.trim_end_matches(['.', ',']);
    delay::span(number).or_else(|| {
        let word = words.next()?;
        let (_, unit) = UNITS.iter().find(|(name, _)| word.starts_with(name))?;
        delay::span(&format!("{number}{unit}"))
    })
}

/// Parses the limit of a message such as
/// `… on tokens per min (TPM): Limit 30000, Used 28000, Requested 5000. …`
pub(super) fn limit(message: &str) -> Option<(Dimension, LimitReading)> {
    let of = |(name, _, _): &&(&str, Dimension, u64)| message.contains(name);
    let (_, dimension, seconds) = LIMITS.iter().find(of)?;
    let limit = number_after(message, "Limit ").filter(|limit| *limit > 0)?;
    // Without `Used`, the request alone exceeds the limit, and nothing is known of what remains.
    let remaining = number_after(message, "Used ").map(|_| 0);
    let window = Duration::from_secs(*seconds);
    Some((*dimension, LimitReading { limit: Some(limit), remaining, reset: None, window }))
}

fn number_after(message: &str, word: &str) -> Option<u64> {
    let (_, rest) = message.split_once(word)?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn delays_are_parsed_from_messages() {
        for (message, millis) in [
            ("Limit 3, Used 3, Requested 1. Please try again in 976ms. See the docs.", 976),
            ("Please try again in 6m0s.", 360_000),
            ("Please try again in 7.66s.", 7_660),
            ("Please retry after 37 seconds.", 37_000),
            ("Please retry after 1 second. Contact support.", 1_000),
            ("Retry after 250 milliseconds, please.", 250),
            ("PLEASE RETRY IN 10.5S.", 10_500),
        ] {
            assert_eq!(delay(message), Some(Duration::from_millis(millis)), "{message}");
        }
        for message in ["", "try again in", "try again in a while", "retry after 37 parsecs", "5s"]
        {
            assert_eq!(delay(message), None, "{message}");
        }
    }

    #[test]
    fn limits_are_parsed_from_messages() {
        let parsed = |message| limit(message).map(|(of, reading)| (of, reading.limit.unwrap()));
        let rpm = "Reached for m on requests per min (RPM): Limit 3, Used 3, Requested 1.";
        assert_eq!(parsed(rpm), Some((Dimension::Requests, 3)));
        assert_eq!(limit(rpm).unwrap().1.remaining, Some(0));
        let rpd = "on requests per day (RPD): Limit 200, Used 200, Requested 1.";
        assert_eq!(parsed(rpd), Some((Dimension::RequestsPerDay, 200)));
        let large = "Too large for m on tokens per min (TPM): Limit 100, Requested 101.";
        assert_eq!(parsed(large), Some((Dimension::Tokens, 100)));
        assert_eq!(limit(large).unwrap().1.remaining, None);
        for message in ["", "Limit 3", "(TPD): Limit 5, Used 5", "(RPM): Limit x", "(RPM) Limit 0"]
        {
            assert_eq!(limit(message), None, "{message}");
        }
    }

    proptest! {
        #[test]
        fn no_message_panics(message in "(\\PC{0,20}(retry in |try again in |Limit |\\(TPM\\)|[0-9.]{1,30}|ms|s|µ))*") {
            let _ = (delay(&message), limit(&message));
        }
    }
}
