//! The report of `tidegate simulate` as one HTML file: no script, and nothing is loaded.
//!
//! Keys and names of policies come from logs and command lines. They pass [`escape`], as do all
//! texts.

use std::fmt::Write as _;

use super::text::{duration, key, share};
use super::{PolicyReport, SearchReport, SimulationReport, WaitReport, svg};

/// Colours for light and dark, and the classes of the plots.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1a;--dim:#6b6a66;--paper:#fcfcfb;--line:#d9d8d4;\
--admitted:#2a78d6;--denied:#e34948;--best:#1b8a5a}\
@media(prefers-color-scheme:dark){:root{--ink:#f0efec;--dim:#a3a29c;--paper:#1a1a19;--line:#3a3937;\
--admitted:#3987e5;--denied:#e66767;--best:#3fbf86}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);\
max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1,h2,h3{line-height:1.2}h2{margin-top:2.5rem}p{color:var(--dim)}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
td,th{padding:.3rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
td:first-child,th:first-child{text-align:left}th{color:var(--dim);font-weight:600}\
tr.best td{color:var(--best);font-weight:600}\
svg{width:100%;height:auto;margin:.5rem 0}svg text{fill:var(--dim);font-size:12px}\
svg .end{text-anchor:end}svg .middle{text-anchor:middle}svg line{stroke:var(--line)}\
.admitted{fill:var(--admitted)}.denied{fill:var(--denied)}.point{fill:var(--admitted)}\
.best{fill:var(--best)}.line{fill:none;stroke:var(--admitted);stroke-width:2}\
.mark{display:inline-block;width:.8em;height:.8em;border-radius:2px}\
.mark.a{background:var(--admitted)}.mark.d{background:var(--denied)}";

impl SimulationReport {
    /// Formats the report as an HTML page.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut body = String::from("<h1>Rate limit simulation</h1>\n");
        for line in self.log.to_lines().lines() {
            let _ = writeln!(body, "<p>{}</p>", escape(line));
        }
        if !self.policies.is_empty() {
            self.policies(&mut body);
        }
        for index in 0..self.policies.len() {
            self.policy_section(index, &mut body);
        }
        if let Some(search) = &self.search {
            search.section(&mut body);
        }
        let keys = self.top_keys.iter().map(|it| (key(&it.key), it.requests, 0));
        body.push_str("<h2>Keys with most requests</h2>\n");
        body.push_str(&svg::bars("Keys with most requests", &keys.collect::<Vec<_>>()));
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"generator\" content=\"tidegate simulate, format {}\">\n\
             <title>Rate limit simulation</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\
             </body>\n</html>\n",
            self.format
        )
    }

    fn policies(&self, body: &mut String) {
        let head = [
            "Policy",
            "Capacity",
            "Rate",
            "Admitted",
            "Denied",
            "Share",
            "Denied cost",
            "Share",
            "Keys denied",
        ];
        let rows = self.policies.iter().map(|it| {
            let cells = [
                key(&it.name),
                it.capacity.to_string(),
                it.rate.clone(),
                it.admitted.to_string(),
                it.denied.to_string(),
                share(it.denied_percent),
                it.denied_cost.to_string(),
                share(it.denied_cost_percent),
                it.keys_denied.to_string(),
            ];
            (cells, false)
        });
        table(head, rows, body);
    }

    fn policy_section(&self, index: usize, body: &mut String) {
        let policy = &self.policies[index];
        let _ = writeln!(body, "<h2>{}</h2>", escape(&key(&policy.name)));
        body.push_str(
            "<p><span class=\"mark a\"></span> admitted <span class=\"mark d\"></span> denied</p>\n",
        );
        let (first, last) = (self.log.first.as_deref(), self.log.last.as_deref());
        body.push_str(&svg::timeline(
            &self.timeline.policies[index],
            self.timeline.interval_s,
            first.unwrap_or_default(),
            last.unwrap_or_default(),
        ));
        policy.details(self.max_wait_ms, body);
    }
}

impl PolicyReport {
    fn details(&self, max_wait_ms: u64, body: &mut String) {
        if self.retry.count > 0 {
            body.push_str("<h3>When denied requests could have been retried</h3>\n");
            self.retry.section(Color::Denied, body);
        }
        if self.over_capacity > 0 {
            let _ = writeln!(
                body,
                "<p>{} requests cost more than the capacity and never fit.</p>",
                self.over_capacity
            );
        }
        if max_wait_ms > 0 && self.waits.count > 0 {
            body.push_str("<h3>How long admitted requests waited</h3>\n");
            self.waits.section(Color::Admitted, body);
        }
        if !self.top_denied.is_empty() {
            body.push_str("<h3>Keys most denied, among all their requests</h3>\n");
            let rows = self.top_denied.iter().map(|it| (key(&it.key), it.requests, it.denied));
            body.push_str(&svg::bars("Keys most denied", &rows.collect::<Vec<_>>()));
        }
    }
}

/// Colour of a plot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Color {
    Admitted,
    Denied,
}

impl WaitReport {
    fn section(&self, color: Color, body: &mut String) {
        let [p50, p90, p99, max] =
            [self.p50_ms, self.p90_ms, self.p99_ms, self.max_ms].map(duration);
        let _ = writeln!(
            body,
            "<p>{} requests: p50 {p50}, p90 {p90}, p99 {p99}, at most {max}</p>",
            self.count
        );
        let rows = self.ranges.iter().map(|range| {
            let label = match range.up_to_ms {
                Some(bound) => format!("up to {}", duration(bound)),
                None => "longer".to_owned(),
            };
            (label, range.count, if color == Color::Denied { range.count } else { 0 })
        });
        body.push_str(&svg::bars("Waits by length", &rows.collect::<Vec<_>>()));
    }
}

impl SearchReport {
    fn section(&self, body: &mut String) {
        let _ = writeln!(
            body,
            "<h2>Smallest capacity that denies less than {} of the {}</h2>",
            escape(&self.deny_below),
            escape(self.by)
        );
        body.push_str(&svg::frontier(&self.frontier, self.best));
        let head = [
            "Rate",
            "Capacity",
            "In a minute",
            "Denied",
            "Share",
            "Denied cost",
            "Share",
            "Denies nothing",
        ];
        let rows = self.frontier.iter().enumerate().map(|(index, it)| {
            let cells = [
                it.rate.clone(),
                it.capacity.to_string(),
                it.spendable_in_a_minute.to_string(),
                it.denied.to_string(),
                share(it.denied_percent),
                it.denied_cost.to_string(),
                share(it.denied_cost_percent),
                it.denies_nothing.to_string(),
            ];
            (cells, self.best == Some(index))
        });
        table(head, rows, body);
        body.push_str("<p>The marked row lets one key spend least in a minute.</p>\n");
    }
}

/// Writes a table. Marked rows stand out.
fn table<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = ([String; N], bool)>,
    body: &mut String,
) {
    body.push_str("<div class=\"wide\"><table>\n<tr>");
    head.iter().for_each(|cell| body.extend(["<th>", &escape(cell), "</th>"]));
    body.push_str("</tr>\n");
    for (cells, is_marked) in rows {
        body.push_str(if is_marked { "<tr class=\"best\">" } else { "<tr>" });
        cells.iter().for_each(|cell| body.extend(["<td>", &escape(cell), "</td>"]));
        body.push_str("</tr>\n");
    }
    body.push_str("</table></div>\n");
}

/// Replaces characters that have a meaning in HTML, in texts and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        assert_eq!(
            escape("<script>\"a\" & 'b'</script>"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;"
        );
    }
}
