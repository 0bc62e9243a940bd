//! Aligned columns: the first to the left, the others to the right.

use std::fmt::Display;

/// Formats rows of equal length. The last column of a row is not padded.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (index, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - cell.chars().count());
            match index {
                0 => line.extend([cell, padding.as_str()]),
                _ => line.extend(["  ", &padding, cell]),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns a row.
pub(super) fn row<const N: usize>(cells: [&dyn Display; N]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned() {
        let rows = [row([&"name", &"n"]), row([&"ä", &100]), row([&"longer", &""])];
        assert_eq!(columns(&rows), "name      n\nä       100\nlonger\n");
    }
}
