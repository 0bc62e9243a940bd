//! The growth table as an SVG plot.
//!
//! The number of keys has a logarithmic axis, nanoseconds a linear one that starts at zero, so that
//! heights are comparable.

use std::fmt::{Result, Write as _};

use crate::core::axis::growth::Size;
use crate::measure::{Figure, as_float};
use crate::report::count;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Room for the numbers and names beside the plot.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

type Column = fn(&Size) -> &Figure;
const CURVES: [(&str, &str, Column); 3] = [
    ("tidegate", "#0b6bcb", |size| &size.ours),
    ("floor: flat table", "#c8501e", |size| &size.floor),
    ("making a key", "#808080", |size| &size.idle),
];

/// Plots these sizes.
pub(in crate::core) fn svg(sizes: &[Size]) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_svg(&mut text, sizes);
    text
}

fn write_svg(text: &mut String, sizes: &[Size]) -> Result {
    let scale = Scale::over(sizes);
    writeln!(
        text,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">"#
    )?;
    writeln!(text, r##"<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>"##)?;
    write_grid(text, sizes, &scale)?;
    for (place, (name, colour, column)) in CURVES.into_iter().enumerate() {
        write_curve(text, sizes, &scale, colour, column)?;
        let x = LEFT + 20.0 + as_float(place as u64) * 180.0;
        writeln!(text, r#"<circle cx="{x}" cy="20" r="5" fill="{colour}"/>"#)?;
        writeln!(text, r#"<text x="{}" y="25">{name}</text>"#, x + 12.0)?;
    }
    writeln!(text, "</svg>")
}

fn write_grid(text: &mut String, sizes: &[Size], scale: &Scale) -> Result {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for line in 0..=5_u64 {
        let nanos = scale.most * as_float(line) / 5.0;
        let y = scale.y(nanos);
        writeln!(
            text,
            r##"<line x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}" stroke="#dddddd"/>"##
        )?;
        let (x, y) = (LEFT - 8.0, y + 4.0);
        writeln!(text, r#"<text x="{x}" y="{y:.1}" text-anchor="end">{nanos:.0}</text>"#)?;
    }
    for size in sizes {
        let (x, y) = (scale.x(size.keys), bottom + 18.0);
        let keys = count(size.keys);
        writeln!(text, r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{keys}</text>"#)?;
    }
    let (x, y) = (f64::midpoint(LEFT, right), HEIGHT - 10.0);
    writeln!(text, r#"<text x="{x}" y="{y}" text-anchor="middle">keys</text>"#)?;
    writeln!(text, r#"<text x="8" y="25">ns</text>"#)
}

/// Draws the medians as a line, with error bars for the range.
fn write_curve(
    text: &mut String,
    sizes: &[Size],
    scale: &Scale,
    colour: &str,
    column: Column,
) -> Result {
    write!(text, r#"<polyline fill="none" stroke="{colour}" stroke-width="2" points=""#)?;
    for size in sizes {
        write!(text, "{:.1},{:.1} ", scale.x(size.keys), scale.y(column(size).median))?;
    }
    writeln!(text, r#""/>"#)?;
    for size in sizes {
        let (x, figure) = (scale.x(size.keys), column(size));
        let [y, low, high] = [figure.median, figure.min, figure.max].map(|nanos| scale.y(nanos));
        writeln!(
            text,
            r#"<line x1="{x:.1}" y1="{low:.1}" x2="{x:.1}" y2="{high:.1}" stroke="{colour}"/>"#
        )?;
        writeln!(text, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}"/>"#)?;
    }
    Ok(())
}

/// Maps values to coordinates.
struct Scale {
    /// Powers of ten at the left and at the right.
    decades: [f64; 2],
    /// Nanoseconds at the top.
    most: f64,
}

impl Scale {
    fn over(sizes: &[Size]) -> Self {
        let decade = |size: Option<&Size>| size.map_or(0.0, |size| decades(size.keys));
        let figures = sizes.iter().flat_map(|size| CURVES.map(|(_, _, column)| column(size).max));
        let most = figures.fold(1.0, f64::max);
        Self {
            decades: [decade(sizes.first()), decade(sizes.last())],
            // A multiple of 25, so that the five grid lines have round values.
            most: (most / 25.0).ceil() * 25.0,
        }
    }

    fn x(&self, keys: usize) -> f64 {
        let [first, last] = self.decades;
        let part = (decades(keys) - first) / (last - first).max(1.0);
        LEFT + 20.0 + part * (WIDTH - LEFT - RIGHT - 40.0)
    }

    fn y(&self, nanos: f64) -> f64 {
        HEIGHT - BOTTOM - nanos / self.most * (HEIGHT - TOP - BOTTOM)
    }
}

fn decades(keys: usize) -> f64 {
    as_float(keys as u64).log10()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::summary;

    fn size(keys: usize, nanos: f64) -> Size {
        let [ours, floor, idle] = [nanos, nanos / 2.0, 5.0].map(|nanos| summary(&[nanos], 0));
        Size { keys, ours, floor, idle }
    }

    #[test]
    fn every_element_is_closed_and_every_number_finite() {
        let text = svg(&[size(1_000, 20.0), size(10_000, 30.0), size(100_000_000, 120.0)]);
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        for line in text.lines().skip(1).filter(|line| *line != "</svg>") {
            assert!(line.ends_with("/>") || line.ends_with("</text>"), "{line}");
            assert_eq!(line.matches('"').count() % 2, 0, "{line}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert_eq!(text.matches("<polyline").count(), 3);
    }

    #[test]
    fn a_factor_of_ten_is_always_as_wide() {
        let scale = Scale::over(&[size(1_000, 20.0), size(100_000, 100.0)]);
        let [one, ten, hundred] = [1_000, 10_000, 100_000].map(|keys| scale.x(keys));
        assert!(((ten - one) - (hundred - ten)).abs() < 1e-9);
        assert!(scale.y(100.0) < scale.y(20.0));
        assert!(scale.y(100.0) >= TOP - 1e-9 && scale.y(0.0) <= HEIGHT - BOTTOM);
    }

    #[test]
    fn one_size_and_none_are_pictures_too() {
        for sizes in [vec![], vec![size(1_000, 20.0)]] {
            assert!(!svg(&sizes).contains("NaN"));
        }
    }
}
