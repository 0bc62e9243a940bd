//! The table of `outcome`, as Markdown.

use std::fmt::{Result, Write as _};

use super::contender::Contender;
use super::figures::Figures;
use super::scenario::{Effort, REQUESTS, TOKENS};
use crate::measure::{Figure, as_float, summary};

/// Formats all runs, with the notes needed to read them.
pub(super) fn table(results: &[(Contender, Vec<Figures>)], effort: Effort) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_table(&mut text, results, effort);
    text
}

fn write_table(text: &mut String, results: &[(Contender, Vec<Figures>)], effort: Effort) -> Result {
    writeln!(
        text,
        "40 agents on one account of a simulated provider (OpenAI's dialect, {REQUESTS} requests and \
         {TOKENS} tokens a minute, requests counted in slices of one second, failed calls count, \
         answers after 0.4 to 0.6 s), in real time over loopback. Three tenants with 20, 12 and 7 \
         agents have {} calls each; a quiet tenant calls every 2 s. The client is the official OpenAI \
         client for Python with its two retries; a call that fails nevertheless starts again after a \
         second. {}\n",
        effort.calls,
        match effort.runs {
            1 => "One run.".to_owned(),
            runs => format!("Median (worst) of {runs} runs."),
        }
    )?;
    writeln!(
        text,
        "| between agents and provider | 429s at clients | 429s at the provider | failed calls | \
         work done | quota used | time, s | by the shortest | Jain's index | quiet tenant, times \
         slower: median | slowest |"
    )?;
    writeln!(
        text,
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for (contender, runs) in results {
        let cell = |value: &dyn Fn(&Figures) -> f64, worst: fn(&Figure) -> f64, digits: usize| {
            let figure = summary(&runs.iter().map(value).collect::<Vec<_>>(), 0);
            match runs.len() {
                1 => format!("{:.digits$}", figure.median),
                _ => format!("{:.digits$} ({:.digits$})", figure.median, worst(&figure)),
            }
        };
        let most = |value: &dyn Fn(&Figures) -> f64, digits| cell(value, |it| it.max, digits);
        let least = |value: &dyn Fn(&Figures) -> f64, digits| cell(value, |it| it.min, digits);
        writeln!(
            text,
            "| {} | {} | {} | {} | {} % | {} % | {} | {} | {} | {} | {} |",
            contender.name(),
            most(&|run| as_float(run.throttled), 0),
            most(&|run| as_float(run.throttled_upstream), 0),
            most(&|run| as_float(run.failed), 0),
            least(&|run| run.done * 100.0, 0),
            least(&|run| run.quota_used * 100.0, 0),
            most(&|run| run.seconds, 1),
            most(&|run| run.ratio, 2),
            least(&|run| run.fairness, 3),
            most(&|run| run.slowdown, 1),
            most(&|run| run.worst_slowdown, 1),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::scenario::QUICK;

    #[test]
    fn the_worst_is_the_least_where_more_is_better() {
        let run = |throttled, quota_used| Figures {
            throttled,
            throttled_upstream: 7,
            failed: 0,
            done: 1.0,
            quota_used,
            seconds: 20.0,
            ratio: 1.05,
            fairness: 0.9,
            slowdown: 1.5,
            worst_slowdown: 3.0,
        };
        let runs = vec![run(3, 0.9), run(5, 0.7), run(4, 0.8)];
        let text = table(&[(Contender::Ours, runs)], QUICK);
        let row = "| Tidegate | 4 (5) | 7 (7) | 0 (0) | 100 (100) % | 80 (70) % | 20.0 (20.0) |";
        assert!(text.contains(row), "{text}");
    }
}
