//! Plots as inline SVG: counts over time, bars, and the frontier of a search.
//!
//! Coordinates are floating-point numbers; nothing is decided by them. Colours come from the style
//! sheet of the page, so that they fit its light and its dark form.

use std::fmt::Write as _;

use super::html::escape;
use super::{FrontierReport, TimelineCounts};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 70.0;
const HEIGHT: f64 = 200.0;
/// Space below a plot, for its labels.
const BOTTOM: f64 = 24.0;

/// Draws admitted and denied requests over time, stacked. `start` and `end` label the axis.
pub(super) fn timeline(counts: &TimelineCounts, interval_s: u64, start: &str, end: &str) -> String {
    let totals = counts.admitted.iter().zip(&counts.denied).map(|(a, d)| a + d);
    let top = totals.max().unwrap_or(0).max(1);
    let width = (WIDTH - LEFT) / counts.admitted.len().max(1) as f64;
    let mut shapes = String::new();
    for (index, (&admitted, &denied)) in counts.admitted.iter().zip(&counts.denied).enumerate() {
        let x = LEFT + index as f64 * width;
        let height = |count: u64| HEIGHT * count as f64 / top as f64;
        let (low, high) = (height(admitted), height(denied));
        let bar = (width - width.min(1.0) * 0.2).max(0.1);
        let _ = write!(
            shapes,
            "<g><title>{admitted} admitted, {denied} denied, {index} x {interval_s} s after the \
             start</title><rect class=\"admitted\" x=\"{x:.2}\" y=\"{:.2}\" width=\"{bar:.2}\" \
             height=\"{low:.2}\"/><rect class=\"denied\" x=\"{x:.2}\" y=\"{:.2}\" \
             width=\"{bar:.2}\" height=\"{high:.2}\"/></g>",
            HEIGHT - low,
            HEIGHT - low - high,
        );
    }
    let (start, end) = (escape(start), escape(end));
    let below = HEIGHT + BOTTOM - 8.0;
    let labels = format!(
        "{}<text x=\"{LEFT}\" y=\"{below}\">{start}</text>\
         <text class=\"end\" x=\"{WIDTH}\" y=\"{below}\">{end}</text>",
        height_labels(top)
    );
    frame("Requests over time", HEIGHT + BOTTOM, &(shapes + &labels))
}

/// Draws one horizontal bar per row: a label, a value, and how much of it is denied.
pub(super) fn bars(title: &str, rows: &[(String, u64, u64)]) -> String {
    const ROW: f64 = 22.0;
    const LABEL: f64 = 330.0;
    const VALUE: f64 = 110.0;
    let top = rows.iter().map(|row| row.1).max().unwrap_or(0).max(1);
    let mut shapes = String::new();
    for (index, (label, value, denied)) in rows.iter().enumerate() {
        let y = index as f64 * ROW;
        let width = |count: u64| (WIDTH - LABEL - VALUE) * count as f64 / top as f64;
        let (label, text_y) = (escape(label), y + 15.0);
        let (all, part) = (width(*value), width(*denied));
        let end = LABEL + all + 6.0;
        let _ = write!(
            shapes,
            "<g><title>{label}: {value}</title>\
             <text class=\"end\" x=\"{:.0}\" y=\"{text_y}\">{label}</text>\
             <rect class=\"admitted\" x=\"{LABEL}\" y=\"{}\" width=\"{all:.2}\" height=\"14\"/>\
             <rect class=\"denied\" x=\"{LABEL}\" y=\"{}\" width=\"{part:.2}\" height=\"14\"/>\
             <text x=\"{end:.2}\" y=\"{text_y}\">{value}</text></g>",
            LABEL - 8.0,
            y + 4.0,
            y + 4.0,
        );
    }
    frame(title, rows.len() as f64 * ROW + 4.0, &shapes)
}

/// Draws the smallest capacity for each rate, with logarithmic axes.
pub(super) fn frontier(points: &[FrontierReport], best: Option<usize>) -> String {
    const RIGHT: f64 = 40.0;
    let logs: Vec<f64> = points.iter().map(|it| (it.capacity as f64).log10()).collect();
    let top = logs.iter().copied().fold(0.1_f64, f64::max);
    let step = (WIDTH - LEFT - RIGHT) / (points.len().max(2) - 1) as f64;
    let place = |index: usize| {
        (LEFT + index as f64 * step, HEIGHT + 10.0 - (HEIGHT - 10.0) * logs[index] / top)
    };
    let line: Vec<String> =
        (0..points.len()).map(place).map(|(x, y)| format!("{x:.2},{y:.2}")).collect();
    let mut shapes = format!("<polyline class=\"line\" points=\"{}\"/>", line.join(" "));
    for (index, point) in points.iter().enumerate() {
        let (x, y) = place(index);
        let (class, radius) = if best == Some(index) { ("best", 6) } else { ("point", 3) };
        let (rate, capacity) = (escape(&point.rate), point.capacity);
        let _ = write!(
            shapes,
            "<circle class=\"{class}\" cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{radius}\"><title>capacity \
             {capacity}, rate {rate}</title></circle>"
        );
        if index % 3 == 0 {
            let _ = write!(
                shapes,
                "<text class=\"middle\" x=\"{x:.2}\" y=\"{:.0}\">{rate}</text>",
                HEIGHT + 28.0
            );
        }
    }
    let highest = points.iter().map(|it| it.capacity).max().unwrap_or(1);
    let labels = format!(
        "<text class=\"end\" x=\"{:.0}\" y=\"24\">{highest}</text>\
         <text class=\"end\" x=\"{:.0}\" y=\"{:.0}\">1</text>",
        LEFT - 8.0,
        LEFT - 8.0,
        HEIGHT + 14.0
    );
    frame("Smallest capacity by rate", HEIGHT + 34.0, &(shapes + &labels))
}

/// Labels the vertical axis of a plot over time.
fn height_labels(top: u64) -> String {
    format!(
        "<text class=\"end\" x=\"{0:.0}\" y=\"12\">{top}</text>\
         <text class=\"end\" x=\"{0:.0}\" y=\"{HEIGHT}\">0</text>\
         <line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{HEIGHT}\" y2=\"{HEIGHT}\"/>",
        LEFT - 8.0
    )
}

fn frame(title: &str, height: f64, shapes: &str) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">{shapes}</svg>\n"
    )
}
